"""Opens the blob store, and on rank 0 the broker, and hands them to the rank's life."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack

from transformers.utils import logging as transformers_logging

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.nats import NatsBus, open_bus
from ebbtide.runtime import Body, Process
from ebbtide.spec.reading import read_spec
from services.learner.app.body import World, live
from services.learner.settings import LearnerSettings


def body(*, settings: LearnerSettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        spec = read_spec(settings.spec)
        blobs = open_blobs(
            settings.blobs_url,
            cache=settings.blobs_cache,
            writable=rights.blob_writes("learner", settings.job_uid),
        )
        async with AsyncExitStack() as stack:
            bus = None
            if settings.rank == 0:
                bus = await stack.enter_async_context(_broker(settings, process))
            world = World(
                settings=settings,
                spec=spec,
                blobs=blobs,
                clock=SystemClock(),
                bus=bus,
            )
            await live(world, process)

    return work


def _broker(settings: LearnerSettings, process: Process) -> AbstractAsyncContextManager[NatsBus]:
    return open_bus(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password.get_secret_value(),
        name=settings.pod,
        log=process.log,
    )
