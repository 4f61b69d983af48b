"""The planner's fields of the job's status."""

from __future__ import annotations

import io
from typing import Any, cast

from ebbtide import logs
from ebbtide.errors import Conflict
from ebbtide.ports import Meta, Resource
from ebbtide.spec import API_VERSION, RLHFJobSpec
from ebbtide.status import Progress, read
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.cluster import FakeCluster
from services.planner.app.notice import Notice
from services.planner.app.world import World
from services.planner.core.book import Book
from services.planner.core.planner import Planner
from services.planner.settings import PlannerSettings
from tests.unit.planner.builders import UID, a_config, some_data


class Counting(FakeCluster):
    """Counts writes of a status; the first `fails` of them meet a conflict."""

    writes = 0
    fails = 0

    async def patch_status(self, *args: Any, **kwargs: Any) -> Resource:
        self.writes += 1
        if self.writes <= self.fails:
            raise Conflict("changed since it was read")
        return await super().patch_status(*args, **kwargs)


async def a_notice() -> tuple[Notice, Counting]:
    cluster = Counting()
    await cluster.create(Resource(API_VERSION, "RLHFJob", Meta(name="job"), {}))
    settings = PlannerSettings(blobs_url="memory:///", job="job", job_uid=UID)
    world = World(
        settings=settings,
        spec=cast("RLHFJobSpec", None),
        blobs=FakeBlobs(),
        bus=cast("Any", None),
        cluster=cluster,
        clock=VirtualClock(),
        writer=bytes(16),
    )
    return Notice(world=world, log=logs.setup("error", stream=io.StringIO())), cluster


def a_planner() -> Planner:
    book = Book(job_uid=UID)
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
