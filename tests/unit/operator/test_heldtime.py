"""Held time: an end is written before it is needed, that a pod lives beside everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ebbtide import paths, usage
from ebbtide.errors import Temporary
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.usage import Usage
from ebbtide.wire import Ref
from ebbtide_operator.heldtime import HeldTime
from tests.unit.operator.stage import QUIET

JOB = ("default", "job")
PATH = paths.usage("j", "pod", "u")


class Slow(FakeBlobs):
    """Puts wait until `open` is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(wall=clock.wall)
        self.open, self.asked = asyncio.Event(), 0

    async def put(self, path: str, data: bytes) -> Ref:
        self.asked += 1
        await self.open.wait()
        return await super().put(path, data)


class Held:
    """The lease, always ours."""

    def check(self) -> None: ...


def play(scene: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scene(VirtualClock())

    run_virtual(whole())


def lived(seen: float, ended: float | None = None) -> Usage:
    return Usage("j", "decode", "pod", "u", "", 1, 0.0, seen, ended)


@asynccontextmanager
async def at_work(blobs: FakeBlobs, clock: VirtualClock) -> AsyncIterator[HeldTime]:
    lease: Any = Held()
    held = HeldTime(blobs=blobs, clock=clock, lease=lease, log=QUIET, seconds=lambda: 10.0)
    task = asyncio.create_task(held.run())
    try:
        yield held
    finally:
        task.cancel()


def stored(blobs: FakeBlobs) -> Usage:
    return usage.decode(blobs.objects[PATH])


def test_that_a_pod_lives_is_waited_for_by_nobody() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = Slow(clock)
        async with at_work(blobs, clock) as held:
            await held.note(JOB, [lived(1.0)])
            assert PATH not in blobs.objects
            blobs.open.set()
            await clock.sleep(1.0)
            assert stored(blobs).seen_at == 1.0

    play(scene)


def test_an_end_is_written_when_the_note_returns() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = FakeBlobs(wall=clock.wall)
        async with at_work(blobs, clock) as held:
            await held.note(JOB, [lived(1.0)])
            await held.note(JOB, [lived(2.0, ended=2.0)])
            assert stored(blobs).ended_at == 2.0
            await clock.sleep(5.0)
            assert stored(blobs).ended_at == 2.0

    play(scene)


def test_an_end_comes_after_a_write_that_is_under_way() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = Slow(clock)
        async with at_work(blobs, clock) as held:
            await held.note(JOB, [lived(1.0)])
            await clock.sleep(1.0)
            end = asyncio.create_task(held.note(JOB, [lived(2.0, ended=2.0)]))
            await clock.sleep(1.0)
            assert blobs.asked == 1
            blobs.open.set()
            await end
            assert stored(blobs).ended_at == 2.0

    play(scene)


def test_a_write_that_fails_late_is_not_made_up_for_after_the_end() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = Slow(clock)
        blobs.outcomes = iter(["fail"])
        async with at_work(blobs, clock) as held:
            await held.note(JOB, [lived(1.0)])
            await clock.sleep(1.0)
            end = asyncio.create_task(held.note(JOB, [lived(2.0, ended=2.0)]))
            await clock.sleep(1.0)
            blobs.open.set()
            await end
            await clock.sleep(30.0)
            assert stored(blobs).ended_at == 2.0

    play(scene)


def test_what_a_failing_store_did_not_take_is_written_later() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = FakeBlobs(wall=clock.wall)
        blobs.outcomes = iter(["fail"] * 3)
        async with at_work(blobs, clock) as held:
            await held.note(JOB, [lived(1.0)])
            await clock.sleep(30.0)
            assert stored(blobs).seen_at == 1.0

    play(scene)


def test_an_end_that_a_failing_store_did_not_take_is_due_again() -> None:
    async def scene(clock: VirtualClock) -> None:
        blobs = FakeBlobs(wall=clock.wall)
        blobs.outcomes = iter(["fail"])
        async with at_work(blobs, clock) as held:
            over = [lived(2.0, ended=2.0)]
            with pytest.raises(Temporary):
                await held.note(JOB, over)
            await held.note(JOB, over)
            assert stored(blobs).ended_at == 2.0

    play(scene)
