"""Answers that end one soon after the other are stored together, and the last ones at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ebbtide.parts import place
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.hot import FakeHot
from ebbtide.testing.samples import sample
from ebbtide.wire import Rollout
from services.decode.app.desk import Desk
from services.decode.core.messages import Event, Stored

GATHER = 0.5


async def stored(ends: list[float], *, drawing: Callable[[], bool]) -> list[tuple[float, int]]:
    """When each object was stored, and of how many answers, for answers that end then."""
    clock = VirtualClock()
    found: list[tuple[float, int]] = []

    def post(event: Event) -> None:
        assert isinstance(event, Stored)
        assert len({place(ref.path)[0] for _, ref in event.rollouts}) == 1
        found.append((clock.now(), len(event.rollouts)))

    desk = Desk(
        blobs=FakeBlobs(),
        bus=FakeBus(clock=clock),
        hot=FakeHot(clock=clock),
        clock=clock,
        log=structlog.get_logger(),
        audit=None,
        post=post,
        drawing=drawing,
        gather=GATHER,
    )
    work = asyncio.ensure_future(desk.tasks()["rollouts"]())
    for end in ends:
        await clock.sleep(end - clock.now())
        desk.rollouts.put_nowait(answer())
    await clock.sleep(10.0)
    work.cancel()
    return found


def answer() -> Rollout:
    found = sample(Rollout)
    assert isinstance(found, Rollout)
    return found


def test_answers_that_end_one_soon_after_the_other_are_one_object() -> None:
    found = run_virtual(stored([0.0, 0.25, 3.0], drawing=lambda: True))
    assert found == [(GATHER, 2), (3.0 + GATHER, 1)]


def test_answers_wait_no_longer_than_the_first_of_them_may() -> None:
    found = run_virtual(stored([0.0, 0.25, 0.375, 0.625], drawing=lambda: True))
    assert found == [(GATHER, 3), (0.625 + GATHER, 1)]


def test_the_last_answers_wait_for_none() -> None:
    found = run_virtual(stored([0.0, 0.25], drawing=lambda: False))
    assert found == [(0.0, 1), (0.25, 1)]
