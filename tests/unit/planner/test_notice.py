"""The planner's fields of the job's status."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import msgspec
import pytest

from ebbtide import logs
from ebbtide.data.outcome import Prepared
from ebbtide.errors import Conflict, Fenced, NotFound
from ebbtide.ports import Meta, Resource
from ebbtide.runtime import Process
from ebbtide.spec import API_VERSION, RLHFJobSpec
from ebbtide.status import Progress, read
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.jobs import a_spec
from ebbtide.wire import Epoch, Fence
from services.planner.app.notice import Notice
from services.planner.app.opening import take_over
from services.planner.app.shell import wait_for_data
from services.planner.app.world import World
from services.planner.core.book import Book
from services.planner.core.planner import Planner
from services.planner.settings import PlannerSettings
from tests.unit.planner.builders import a_config, a_ref, some_data

Meanwhile = Callable[[], Awaitable[None]]


class Counting(FakeCluster):
    """Counts writes of a status; the first `fails` of them meet a conflict.

    `meanwhile`: what happens once between the reading and the writing of an object.
    """

    writes = 0
    fails = 0
    meanwhile: Meanwhile | None = None

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        found = await super().get(kind, namespace, name)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            await meanwhile()
        return found

    async def patch_status(self, *args: Any, **kwargs: Any) -> Resource:
        self.writes += 1
        if self.writes <= self.fails:
            raise Conflict("changed since it was read")
        return await super().patch_status(*args, **kwargs)


async def a_notice() -> tuple[Notice, Counting]:
    cluster = Counting()
    job = await cluster.create(Resource(API_VERSION, "RLHFJob", Meta(name="job"), {}))
    return on(cluster, job.metadata.uid), cluster


def on(cluster: FakeCluster, uid: str, *, epoch: int = 1) -> Notice:
    """What a planner of that epoch writes with."""
    log = logs.setup("error", stream=io.StringIO())
    return Notice(world=a_world(cluster, uid, epoch), fence=Fence(1, epoch), log=log)


def a_world(cluster: FakeCluster, uid: str, writer: int, blobs: FakeBlobs | None = None) -> World:
    """Of a planner whose data lie nowhere."""
    return World(
        settings=PlannerSettings(blobs_url="memory:///", job="job", job_uid=uid),
        spec=RLHFJobSpec.model_validate_json(msgspec.json.encode(a_spec())),
        blobs=blobs or FakeBlobs(),
        bus=cast("Any", None),
        cluster=cluster,
        clock=VirtualClock(),
        writer=bytes([writer] * 16),
        prepared=Prepared(a_ref("nowhere"), None),
    )


async def supersede(cluster: FakeCluster) -> None:
    """The next planner says that it is there."""
    job = await cluster.get("RLHFJob", "default", "job")
    await on(cluster, job.metadata.uid, epoch=2).preparing()


def a_planner(uid: str = "uid-1", epoch: int = 1) -> Planner:
    book = Book(job_uid=uid)
    book.apply(Epoch(epoch, 1, 0, None))
    return Planner(config=a_config(), data=some_data(), book=book, pod="p", now=0.0)


async def progress_of(cluster: FakeCluster) -> Progress:
    job = await cluster.get("RLHFJob", "default", "job")
    return read(job.status, "progress", Progress)


def test_bad_data_end_the_job_in_words_that_name_the_field() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        await notice.refuse("/spec/dataset/train/uri: no such file")
        progress = await progress_of(cluster)
        assert (progress.outcome, progress.reason) == ("failed", "DataRefused")
        assert progress.message == "/spec/dataset/train/uri: no such file"

    run_virtual(scenario())


def test_an_outcome_is_written_until_it_stands() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        cluster.fails = 3
        await notice.last(a_planner())
        assert cluster.writes == 4
        assert (await progress_of(cluster)).total_steps == 2

    run_virtual(scenario())


def test_a_status_that_did_not_change_is_not_written_again() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        planner = a_planner()
        await notice.last(planner)
        await notice.last(planner)
        assert cluster.writes == 1

    run_virtual(scenario())


def test_a_job_that_was_deleted_needs_no_outcome() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        await cluster.delete("RLHFJob", "default", "job")
        await notice.last(a_planner())

    run_virtual(scenario())


Write = Callable[[Notice], Awaitable[None]]
WRITES = {
    "keep": lambda notice: notice.keep(a_planner()),
    "last": lambda notice: notice.last(a_planner()),
    "preparing": Notice.preparing,
    "refuse": lambda notice: notice.refuse("bad"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_superseded_planner_shows_nothing_and_ends(write: Write) -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        await supersede(cluster)
        shown = await progress_of(cluster)
        with pytest.raises(Fenced):
            async with asyncio.timeout(10.0):
                await write(notice)
        assert await progress_of(cluster) == shown

    run_virtual(scenario())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_planner_that_is_superseded_between_look_and_write_ends(write: Write) -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        cluster.meanwhile = partial(supersede, cluster)
        with pytest.raises(Fenced):
            async with asyncio.timeout(10.0):
                await write(notice)
        assert (await progress_of(cluster)).planner_epoch == 2

    run_virtual(scenario())


def test_a_newer_planner_writes_over_an_older_one() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        await notice.last(a_planner())
        await on(cluster, "uid-1", epoch=2).last(a_planner(epoch=2))
        assert (await progress_of(cluster)).planner_epoch == 2

    run_virtual(scenario())


def test_a_job_made_again_under_the_old_name_is_left_alone() -> None:
    async def scenario() -> None:
        notice, cluster = await a_notice()
        await cluster.delete("RLHFJob", "default", "job")
        await cluster.create(Resource(API_VERSION, "RLHFJob", Meta(name="job"), {}))
        with pytest.raises(Fenced):
            await notice.preparing()

    run_virtual(scenario())


async def refuse_data(*, superseded: bool) -> Progress:
    """What the job shows after a planner found its data at fault."""
    cluster, blobs = Counting(), FakeBlobs()
    await cluster.create(Resource(API_VERSION, "RLHFJob", Meta(name="job"), {}))
    world = a_world(cluster, "uid-1", 1, blobs)
    ledger, _ = await take_over(world)
    if superseded:
        await take_over(a_world(cluster, "uid-1", 2, blobs))
    log = logs.setup("error", stream=io.StringIO())
    process = Process(group=cast("Any", None), registry=cast("Any", None), log=log)
    notice = Notice(world=world, fence=Fence(1, 1), log=log)
    with pytest.raises(Fenced if superseded else NotFound):
        await wait_for_data(world, process, notice, ledger)
    return await progress_of(cluster)


@pytest.mark.parametrize(("superseded", "outcome"), [(False, "failed"), (True, "")])
def test_only_the_owner_of_the_ledger_refuses_data(superseded: bool, outcome: str) -> None:
    async def scenario() -> None:
        assert (await refuse_data(superseded=superseded)).outcome == outcome

    run_virtual(scenario())
