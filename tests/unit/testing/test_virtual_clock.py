"""Virtual time passes only when nothing else is to do, and always in the same order."""

import asyncio
import time

import pytest

from ebbtide.testing.clock import VirtualClock, run_virtual


def test_an_hour_passes_in_no_time() -> None:
    async def scenario() -> float:
        clock = VirtualClock()
        await clock.sleep(3600)
        return clock.now()

    assert run_virtual(scenario()) == 3600


def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    async def scenario() -> list[int]:
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await VirtualClock().sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleeper(seconds) for seconds in (30, 10, 20)))
        return woken

    assert run_virtual(scenario()) == [10, 20, 30]


def test_timeouts_follow_virtual_time() -> None:
    async def scenario() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return VirtualClock().now()

    assert run_virtual(scenario()) == 60


def test_time_stands_still_while_a_thread_works() -> None:
    async def scenario() -> float:
        timer = asyncio.create_task(asyncio.sleep(100))
        await asyncio.to_thread(time.sleep, 0.01)
        now = VirtualClock().now()
        timer.cancel()
        return now

    assert run_virtual(scenario()) == 0
