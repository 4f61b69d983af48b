"""Opens the stores, the broker and the objects, and hands them to the planner's life."""

from __future__ import annotations

import gc
import os
from contextlib import AsyncExitStack

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.clusters import open_objects
from ebbtide.adapters.nats import open_bus
from ebbtide.ports import Cluster
from ebbtide.runtime import Body, Process
from ebbtide.spec.reading import read_spec
from services.planner.app.shell import live
from services.planner.app.world import World
from services.planner.settings import PlannerSettings


def relax_gc() -> None:
    """Look for garbage less often: a step's hundred thousand small objects hold no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def body(*, settings: PlannerSettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        async with AsyncExitStack() as stack:
            world = await _open(settings, stack, process)
            stack.callback(process.stop_background)  # before what it uses is closed
            await live(world, process)

    return work


async def _open(settings: PlannerSettings, stack: AsyncExitStack, process: Process) -> World:
    spec = read_spec(settings.spec)
    bus = await stack.enter_async_context(
        open_bus(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password.get_secret_value(),
            name=settings.pod,
            manage=True,
            replicas=settings.nats_copies,
            log=process.log,
        )
    )
    clock = SystemClock()
    cluster: Cluster | None = None
    if settings.cluster:
        objects = open_objects(settings.cluster, clock=clock, manager="ebbtide-planner")
        cluster = await stack.enter_async_context(objects)
    return World(
        settings=settings,
        spec=spec,
        blobs=open_blobs(
            settings.blobs_url,
            cache=settings.blobs_cache,
            writable=rights.blob_writes("planner", settings.job_uid),
        ),
        bus=bus,
        cluster=cluster,
        clock=clock,
        writer=os.urandom(16),
    )
