"""Queues between an engine's thread and asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ebbtide.engines.mailbox import Commands, Events, Seen
from ebbtide.errors import Permanent
from ebbtide.ports import EngineFailed
from ebbtide.wire import Dispatch


def _event(n: int) -> EngineFailed:
    return EngineFailed(Dispatch(1, 1, n), "engine", "")


async def test_events_posted_by_a_thread_wake_the_loop() -> None:
    events = Events()
    waiting = asyncio.ensure_future(events.collect(timeout=30.0))
    await asyncio.sleep(0)
    thread = threading.Thread(target=events.post, args=([_event(0)],))
    thread.start()
    assert await waiting == [_event(0)]
    thread.join()


async def test_no_event_is_lost_or_doubled_between_threads() -> None:
    events, seen = Events(), list[int]()

    def work() -> None:
        for n in range(3000):
            events.post([_event(n)])

    thread = threading.Thread(target=work)
    thread.start()
    async with asyncio.timeout(30):
        while len(seen) < 3000:
            seen += [event.dispatch.seq for event in await events.collect(timeout=1.0)]
    thread.join()
    assert seen == list(range(3000))


async def test_a_failure_is_raised_after_what_was_posted() -> None:
    events = Events()
    events.post([_event(0)])
    events.fail(Permanent("broke"))
    assert await events.collect(timeout=0.0) == [_event(0)]
    with pytest.raises(Permanent, match="broke"):
        await events.collect(timeout=0.0)


async def test_a_failure_wakes_who_waits() -> None:
    events = Events()
    waiting = asyncio.ensure_future(events.collect(timeout=30.0))
    await asyncio.sleep(0)
    events.fail(Permanent("broke"))
    with pytest.raises(Permanent):
        await waiting


def test_commands_are_taken_in_order_and_all_at_once() -> None:
    commands: Commands[int] = Commands()
    for n in range(3):
        commands.put(n)
    assert commands.take(wait=True) == [0, 1, 2]
    assert commands.take(wait=False) == []


def test_only_the_latest_dispatches_are_remembered() -> None:
    seen = Seen(most=2)
    hands = [Dispatch(1, 1, n) for n in range(3)]
    assert [seen.first(hand) for hand in (hands[0], hands[0], hands[1])] == [True, False, True]
    assert seen.first(hands[2])
    assert [seen.first(hand) for hand in (hands[2], hands[1], hands[0])] == [False, False, True]
