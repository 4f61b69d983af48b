"""Opens the stores, the broker and the engine, and runs the actor over them."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.nats import open_bus
from ebbtide.adapters.valkey import open_hot
from ebbtide.ports import Clock, Transfer
from ebbtide.runtime import Body, Process
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.reading import read_spec
from ebbtide.transfer.ways import Way, chosen, open_transfer, own_address
from services.decode.app.shell import Shell, World
from services.decode.engine import start_engine
from services.decode.settings import DecodeSettings


def body(*, settings: DecodeSettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        spec = read_spec(settings.spec)
        async with AsyncExitStack() as stack:
            world = await _open(settings, spec, stack, process)
            await Shell(world=world, process=process).run()

    return work


async def _open(
    settings: DecodeSettings, spec: RLHFJobSpec, stack: AsyncExitStack, process: Process
) -> World:
    clock = SystemClock()
    blobs = open_blobs(
        settings.blobs_url,
        cache=settings.blobs_cache,
        writable=rights.blob_writes("decode", settings.job_uid),
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
    password = settings.valkey_password.get_secret_value()
    hot = await stack.enter_async_context(open_hot(settings.valkey_url, password=password))
    engine = await start_engine(spec, clock=clock)
    stack.push_async_callback(engine.close)
    if spec.decode.engine == "vllm":
        from ebbtide.engines.vllm.metrics import PassedThrough  # noqa: PLC0415

        process.registry.register(PassedThrough())
    asked = chosen(spec.decode.kv_transfer, engine=spec.decode.engine, environ=os.environ)
    transfer, way = _transfer(asked, settings, clock, process)
    if transfer is not None:
        stack.push_async_callback(transfer.close)
    return World(
        settings=settings,
        slots=spec.decode.slots,
        blobs=blobs,
        bus=bus,
        hot=hot,
        engine=engine,
        clock=clock,
        transfer=transfer,
        ways=(asked, way),
    )


def _transfer(
    asked: Way, settings: DecodeSettings, clock: Clock, process: Process
) -> tuple[Transfer | None, str]:
    """The hand-over of KV, if there can be any, and which."""
    try:
        return open_transfer(
            asked,
            name=settings.pod,
            clock=clock,
            folder=settings.kv_folder,
            host=settings.kv_host or own_address(settings.nats_url),
            log=process.log,
        )
    except OSError as error:
        process.log.warning("no hand-over of KV; samples that move compute", why=str(error))
        return None, "none"
