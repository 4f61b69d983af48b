"""Opens the stores and the broker, prepares the data, claims an epoch and drives the job."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ebbtide import rights, streams
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.adapters.nats import open_bus
from ebbtide.errors import Refused
from ebbtide.runtime import Body, Process
from ebbtide.spec import RLHFJobSpec
from ebbtide.status import Progress
from services.planner.app.herald import write_status
from services.planner.app.shell import Shell, claim
from services.planner.app.world import World, prepared_data
from services.planner.core.book import Book
from services.planner.core.config import Grpo, JobConfig, configure
from services.planner.settings import PlannerSettings


def body(*, settings: PlannerSettings) -> Body:
    """What `ebbtide.runtime` runs."""
    spec = RLHFJobSpec.model_validate_json(settings.spec)

    async def work(process: Process) -> None:
        async with AsyncExitStack() as stack:
            await drive(await _open(settings, stack, process), spec, process)

    return work


async def drive(world: World, spec: RLHFJobSpec, process: Process) -> None:
    """Run the job to its end; input that cannot work ends it as failed."""
    try:
        data = await prepared_data(world)
    except Refused as refused:
        await _fail(world, refused)
        raise
    config = configure(spec, job_uid=world.settings.job_uid, data=data)
    book = _book(config)
    ledger = await claim(world, config, book)
    uid, epoch = config.job_uid, book.epoch
    consumer = await world.bus.consume(
        streams.FACTS,
        streams.holder(uid, epoch),
        streams.facts(uid),
        replaces=streams.holders(uid),
    )
    shell = Shell(
        world=world,
        process=process,
        config=config,
        data=data,
        book=book,
        ledger=ledger,
        consumer=consumer,
    )
    await shell.run()


def _book(config: JobConfig) -> Book:
    work = config.work
    judged = work.evaluation if isinstance(work, Grpo) else None
    return Book(
        job_uid=config.job_uid,
        rows_per_step=config.rows_per_step,
        threshold=judged.threshold if judged else 1.0,
    )


async def _fail(world: World, refused: Refused) -> None:
    where = f"{refused.field}: " if refused.field else ""
    ending = Progress(
        attempt=world.settings.attempt,
        outcome="failed",
        reason="InvalidData",
        message=f"{where}{refused.detail}",
    )
    await write_status(world, {"progress": msgspec.to_builtins(ending)})


async def _open(settings: PlannerSettings, stack: AsyncExitStack, process: Process) -> World:
    clock = SystemClock()
    bus = await stack.enter_async_context(
        open_bus(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password.get_secret_value(),
            name=settings.pod,
            manage=True,
            log=process.log,
        )
    )
    cluster = None
    if settings.cluster:
        cluster = await stack.enter_async_context(open_cluster(Path(settings.cluster), clock=clock))
    blobs = open_blobs(
        settings.blobs_url,
        cache=settings.blobs_cache,
        writable=rights.blob_writes("planner", settings.job_uid),
    )
    return World(
        settings=settings, blobs=blobs, bus=bus, clock=clock, cluster=cluster, log=process.log
    )
