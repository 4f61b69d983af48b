"""Effects take place in order: what must be durable is, before anybody hears of it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ebbtide import ledger, logs, paths
from ebbtide.errors import Fenced, Temporary
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.wire import Abandoned, Drain, Fence, Record, SampleKey
from services.planner.app.metrics import PlannerMetrics
from services.planner.app.performer import Performer
from services.planner.core.effects import (
    Acknowledge,
    Append,
    Effect,
    Finish,
    ScalePool,
    Send,
    WriteBlob,
)
from tests.unit.planner.builders import UID


def a_record(n: int) -> Record:
    return Abandoned(SampleKey(UID, 0, 0, n), "test")


class Bench:
    """A performer over a real ledger in memory; `done` lists what took place."""

    def __init__(self, *, gather: float = 0.5) -> None:
        self.clock = VirtualClock()
        self.blobs = FakeBlobs()
        self.done: list[str] = []
        self.fails = False
        self.log = logs.setup("error", stream=io.StringIO())
        self.ledger = self.new_ledger(b"a" * 16)
        self.performer = Performer(
            ledger=self.ledger,
            errands=self,  # type: ignore[arg-type]
            clock=self.clock,
            gather=gather,
            metrics=PlannerMetrics(CollectorRegistry()),
            log=self.log,
        )

    def new_ledger(self, writer: bytes) -> ledger.Ledger:
        return ledger.Ledger(blobs=self.blobs, clock=self.clock, uid=UID, writer=writer)

    async def start(self) -> asyncio.Task[None]:
        await self.ledger.take_over(lambda _: None, attempt=1, parent=lambda: None)
        return asyncio.create_task(self.performer.run())

    def work(self, effect: Effect) -> Coroutine[Any, Any, None]:
        return self._work(effect)

    async def _work(self, effect: Effect) -> None:
        if self.fails:
            raise Temporary("nobody there")
        self.done.append(f"{type(effect).__name__} after {len(self.segments()) - 1} segments")

    async def write(self, effect: Effect) -> None:
        assert isinstance(effect, WriteBlob)
        self.done.append(f"WriteBlob after {len(self.segments()) - 1} segments")

    def segments(self) -> list[int]:
        """Records in each segment."""
        stored = sorted(p for p in self.blobs.objects if p.startswith(paths.segments(UID)))
        return [len(ledger.decode_segment(self.blobs.objects[p]).records) for p in stored]


def test_what_follows_a_record_waits_until_it_is_durable() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.start()
        bench.performer.add([Append(a_record(0)), Acknowledge((1,))])
        assert bench.done == []
        await bench.clock.sleep(1.0)
        assert bench.done == ["Acknowledge after 1 segments"]

    run_virtual(scenario())


def test_records_that_nobody_waits_for_share_a_segment() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.start()
        for n in range(3):
            bench.performer.add([Append(a_record(n)), Acknowledge((n,))])
            await bench.clock.sleep(0.1)
        await bench.clock.sleep(1.0)
        assert bench.segments() == [1, 3]

    run_virtual(scenario())


def test_urgent_records_do_not_wait_for_company() -> None:
    async def scenario() -> None:
        bench = Bench(gather=5.0)
        await bench.start()
        bench.performer.add([Append(a_record(0)), Acknowledge((0,))])
        await bench.clock.sleep(0.01)
        assert bench.segments() == [1]  # the epoch
        bench.performer.add([Append(a_record(1)), Acknowledge((1,))], urgent=True)
        await bench.clock.sleep(0.01)
        assert bench.segments() == [1, 2]

    run_virtual(scenario())


def test_a_command_does_not_wait_for_company() -> None:
    async def scenario() -> None:
        bench = Bench(gather=5.0)
        await bench.start()
        bench.performer.add([Append(a_record(0)), Send(1, "a", Drain(Fence(1, 1)), 1.0)])
        await bench.clock.sleep(0.01)
        assert bench.done == ["Send after 1 segments"]

    run_virtual(scenario())


def test_a_blob_is_written_between_the_records_around_it() -> None:
    async def scenario() -> None:
        bench = Bench(gather=0.0)
        await bench.start()
        blob = WriteBlob("path", b"data")
        bench.performer.add([Append(a_record(0)), blob, Append(a_record(1)), Acknowledge((1,))])
        await bench.clock.sleep(1.0)
        assert bench.done == ["WriteBlob after 1 segments", "Acknowledge after 2 segments"]

    run_virtual(scenario())


def test_a_planner_whose_slot_is_taken_tells_nobody_anything_more() -> None:
    async def scenario() -> None:
        bench = Bench(gather=0.0)
        running = await bench.start()
        newer = bench.new_ledger(b"b" * 16)
        await newer.take_over(lambda _: None, attempt=1, parent=lambda: None)
        bench.performer.add([Append(a_record(0)), Acknowledge((1,))])
        with pytest.raises(Fenced):
            await running
        assert bench.done == []

    run_virtual(scenario())


def test_an_errand_that_fails_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        bench = Bench(gather=0.0)
        await bench.start()
        bench.fails = True
        bench.performer.add([Acknowledge((1,))])
        await bench.clock.sleep(1.0)
        bench.fails = False
        bench.performer.add([Acknowledge((2,))])
        await bench.clock.sleep(1.0)
        assert len(bench.done) == 1

    run_virtual(scenario())


def test_the_outcome_comes_after_all_records() -> None:
    async def scenario() -> None:
        bench = Bench(gather=5.0)
        await bench.start()
        bench.performer.add([Append(a_record(0)), Finish("complete", "Complete", "")])
        assert (await bench.performer.finished).outcome == "complete"
        assert bench.segments() == [1, 1]
        assert bench.performer.idle

    run_virtual(scenario())


@pytest.mark.parametrize(
    "effect",
    [Finish("failed", "LearnerTimeout", "it was the planner that slept"), ScalePool(0, ())],
)
def test_only_the_owner_of_the_ledger_ends_the_job_or_scales_its_pool(effect: Effect) -> None:
    async def scenario() -> None:
        bench = Bench(gather=0.0)
        running = await bench.start()
        newer = bench.new_ledger(b"b" * 16)
        await newer.take_over(lambda _: None, attempt=1, parent=lambda: None)
        bench.performer.add([effect])
        with pytest.raises(Fenced):
            await running
        assert not bench.performer.finished.done()
        assert bench.done == []

    run_virtual(scenario())
