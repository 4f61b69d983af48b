"""Rank 0 on the bus: commands, beats, nonsense."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable

import pytest

from ebbtide import logs, streams
from ebbtide.errors import Fenced
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.wire import (
    Fence,
    LearnerBeat,
    LearnerReply,
    PlannerBeat,
    PolicyRef,
    Ref,
    Refusal,
    Save,
    Saved,
    Working,
    decode,
    encode,
)
from services.learner.app.front import Front
from services.learner.core.progress import Progress

UID = "job"
PROGRESS = Progress(step=3, policy=PolicyRef(3, 2, "d"), index=Ref("i", "d", 1))
SAVE = Save(Fence(2, 1), 3)
SAVED = Saved(2, 3, PolicyRef(3, 2, "d"), Ref("i", "d", 1), (), 1.0)


def with_front(scenario: Callable[[FakeBus, Front], Awaitable[None]]) -> None:
    async def whole() -> None:
        bus = FakeBus(clock=VirtualClock())
        log = logs.setup("info", stream=io.StringIO())
        front = Front(bus=bus, uid=UID, attempt=2, instance="learner-0", log=log)
        async with asyncio.timeout(600.0):
            await scenario(bus, front)

    run_virtual(whole())


async def ask(bus: FakeBus, data: bytes) -> LearnerReply:
    reply = await bus.request(streams.learner(UID, 2), data, timeout=1.0)
    return decode(reply, LearnerReply)  # type: ignore[arg-type]


def test_a_command_is_handed_on_once_and_answered_when_done() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        front.open(PROGRESS)
        stopped = asyncio.Event()
        serving = asyncio.create_task(front.serve(stopped))
        await asyncio.sleep(0)
        assert await ask(bus, encode(SAVE)) == Working("saving")
        assert await ask(bus, encode(SAVE)) == Working("saving")
        assert await front.next_order(1.0) == SAVE
        assert await front.next_order(1.0) is None
        front.finish(SAVE, SAVED)
        assert await ask(bus, encode(SAVE)) == SAVED
        stopped.set()
        await serving

    with_front(scenario)


def test_nonsense_is_refused_with_a_reply() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        front.open(PROGRESS)
        stopped = asyncio.Event()
        serving = asyncio.create_task(front.serve(stopped))
        await asyncio.sleep(0)
        reply = await ask(bus, b"\x81\xa1x\x01")
        assert isinstance(reply, Refusal)
        assert reply.code == "invalid"
        stopped.set()
        await serving

    with_front(scenario)


def test_a_beat_tells_which_weights_the_policy_is_held_near() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        front.reference = "weights"
        async with bus.beats(streams.beats(UID)) as beats:
            beating = asyncio.create_task(front.beat(lambda: PROGRESS))
            assert decode(await anext(beats), LearnerBeat).reference == "weights"
            beating.cancel()

    with_front(scenario)


def test_beats_come_each_second_and_at_once_when_work_begins() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        async with bus.beats(streams.beats(UID)) as beats:
            beating = asyncio.create_task(front.beat(lambda: PROGRESS))
            heard = [decode(await anext(beats), LearnerBeat) for _ in range(3)]
            assert [beat.phase for beat in heard] == ["starting"] * 3
            assert VirtualClock().now() == 2.0
            front.open(PROGRESS)
            assert decode(await anext(beats), LearnerBeat).phase == "idle"
            assert VirtualClock().now() == 2.0
            assert heard[0].policy == PROGRESS.policy
            beating.cancel()

    with_front(scenario)


def test_a_replaced_gang_ends_when_it_hears_the_planner_of_a_later_attempt() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        hearing = asyncio.create_task(front.hear_planner())
        beating = asyncio.create_task(front.beat(lambda: PROGRESS))
        await asyncio.sleep(0)
        for data in (encode(PlannerBeat(Fence(2, 9))), b"junk", encode(PlannerBeat(Fence(1, 1)))):
            await bus.beat(streams.planner(UID), data)
        await asyncio.sleep(5.0)
        assert not beating.done()
        await bus.beat(streams.planner(UID), encode(PlannerBeat(Fence(3, 1))))
        with pytest.raises(Fenced, match="attempt 3 has begun, this is 2"):
            await beating
        hearing.cancel()

    with_front(scenario)


def test_a_command_of_a_later_attempt_is_refused_and_ends_the_gang() -> None:
    async def scenario(bus: FakeBus, front: Front) -> None:
        front.open(PROGRESS)
        stopped = asyncio.Event()
        serving = asyncio.create_task(front.serve(stopped))
        beating = asyncio.create_task(front.beat(lambda: PROGRESS))
        await asyncio.sleep(0)
        reply = await ask(bus, encode(Save(Fence(3, 1), 3)))
        assert isinstance(reply, Refusal)
        assert reply.code == "fenced"
        with pytest.raises(Fenced):
            await beating
        stopped.set()
        await serving

    with_front(scenario)
