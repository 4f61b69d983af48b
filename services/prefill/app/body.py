"""Opens the stores, the broker and the engine, and runs the service over them."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.nats import open_bus
from ebbtide.errors import Temporary
from ebbtide.ports import Clock, Transfer
from ebbtide.runtime import Body, Process
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.reading import read_spec
from ebbtide.transfer.ways import chosen, open_transfer, own_address
from services.prefill.app.shell import Shell, World
from services.prefill.core.desk import Limits
from services.prefill.engine import make_engine
from services.prefill.settings import PrefillSettings


def body(*, settings: PrefillSettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        spec = read_spec(settings.spec)
        async with AsyncExitStack() as stack:
            world = await _open(settings, spec, stack, process)
            await Shell(world=world, process=process).run()

    return work


async def _open(
    settings: PrefillSettings, spec: RLHFJobSpec, stack: AsyncExitStack, process: Process
) -> World:
    clock = SystemClock()
    blobs = open_blobs(
        settings.blobs_url,
        cache=settings.blobs_cache,
        writable=rights.blob_writes("prefill", settings.job_uid),
    )
    bus = await stack.enter_async_context(
        open_bus(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password.get_secret_value(),
            name=settings.pod,
            log=process.log,
        )
    )
    engine = make_engine(spec)
    stack.push_async_callback(engine.close)
    transfer = _transfer(settings, spec, clock, process)
    stack.push_async_callback(transfer.close)
    return World(
        settings=settings,
        limits=limits(spec, settings),
        blobs=blobs,
        bus=bus,
        engine=engine,
        transfer=transfer,
        clock=clock,
    )


def _transfer(
    settings: PrefillSettings, spec: RLHFJobSpec, clock: Clock, process: Process
) -> Transfer:
    try:
        transfer, _ = open_transfer(
            chosen(spec.decode.kv_transfer, engine=spec.decode.engine, environ=os.environ),
            name=settings.pod,
            clock=clock,
            folder=settings.kv_folder,
            host=settings.kv_host or own_address(settings.nats_url),
            log=process.log,
        )
    except OSError as error:
        raise Temporary(f"no room for the hand-over of KV: {error}") from None
    return transfer


def limits(spec: RLHFJobSpec, settings: PrefillSettings) -> Limits:
    """What the machine is bounded by."""
    return Limits(
        at_once=spec.prefill.prefix_rows,
        keep=spec.prefill.keep_mib << 20,
        hold=settings.kv_hold_seconds,
        orphan=settings.orphan_seconds,
    )
