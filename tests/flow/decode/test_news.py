"""When an actor speaks: heartbeats, and facts that a planner has not heard."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from ebbtide import streams
from ebbtide.wire import (
    Fence,
    PlannerBeat,
    encode,
)
from tests.worlds.decoding import running


def test_heartbeats_come_each_second_and_at_once_on_a_change(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            await job.beat("a0")
            first = await job.beat("a0")
            began = stand.clock.now()
            assert (await job.beat("a0")).number == first.number + 1
            assert stand.clock.now() - began == pytest.approx(1.0)
            await job.load("a0")
            assert stand.clock.now() - began < 1.5

    run(scenario)


def test_a_heartbeat_tells_at_once_of_the_first_sample_and_of_the_last(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job, now = stand.job, stand.clock.now
        async with stand.actor():
            assign = await job.assign(3, await job.load("a0"))
            busy = asyncio.ensure_future(job.beat("a0", lambda beat: 3 in running(beat)))
            await job.beat("a0")
            began = now()
            await job.submit("a0", assign)
            await busy
            assert now() - began < 0.1
            await job.beat("a0", lambda beat: beat.outbox and not running(beat))
            assert now() - began == pytest.approx(0.1 * 40, abs=0.2)

    run(scenario)


def test_a_new_planner_hears_what_the_last_one_acknowledged_and_did_not_answer_for(
    run: Any,
) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            await job.submit("a0", await job.assign(0, await job.load("a0")))
            fact = await job.fact()
            await stand.bus.beat(streams.planner(job.uid), encode(PlannerBeat(Fence(1, 2))))
            async with asyncio.timeout(5.0):
                assert await job.fact() == fact

    run(scenario)


def test_a_change_is_followed_by_beats_that_grow_rare(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy = await job.load("a0")
            await job.submit("a0", await job.assign(0, policy, n=40))
            times = [stand.clock.now()]
            for _ in range(3):
                await job.beat("a0", lambda beat: bool(running(beat)))
                times.append(stand.clock.now())
            pauses = [round(b - a, 2) for a, b in pairwise(times)]
            assert pauses == [0.25, 0.5, 1.0]

    run(scenario)
