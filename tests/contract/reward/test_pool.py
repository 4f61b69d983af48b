"""Real worker processes: killed, crashing, hanging, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from ebbtide.errors import Permanent, Refused
from ebbtide.rewards.outcomes import Answer, Judged, Unusable, Worth
from services.reward.core import Crashed, TimedOut, Verdict


def answer(response: str) -> Answer:
    return Answer("prompt", response, b"{}", "t")


def _nursery(worker: psutil.Process) -> psutil.Process:
    found = worker.parent()
    assert found is not None
    return found


async def scores(pool: Any, *responses: str) -> list[Any]:
    verdicts = await asyncio.gather(*(pool.score(answer(r)) for r in responses))
    return [v.outcomes[0] if isinstance(v, Judged) else type(v) for v in verdicts]


async def test_each_answer_gets_its_own_verdict(open_pool: Any) -> None:
    async with open_pool(workers=2) as pool:
        found = await scores(pool, *(str(n) for n in range(200)))
    assert found == [Worth(float(n)) for n in range(200)]


async def test_an_answer_that_hangs_is_killed_and_the_rest_goes_on(open_pool: Any) -> None:
    async with open_pool(seconds=2.0) as pool:
        assert await scores(pool, "1", "hang", "2") == [Worth(1.0), TimedOut, Worth(2.0)]


async def test_an_answer_that_kills_its_worker_is_blamed_only_when_alone(open_pool: Any) -> None:
    async with open_pool() as pool:
        found = await scores(pool, "1", "crash", "2", "crash", "3")
    assert found == [Worth(1.0), Crashed, Worth(2.0), Crashed, Worth(3.0)]


@pytest.mark.parametrize("how", ["leave", "close", "garbage"])
async def test_whatever_a_function_does_to_its_worker_the_next_answer_is_judged(
    open_pool: Any, how: str
) -> None:
    async with open_pool() as pool:
        assert await scores(pool, how, "1", how, "2") == [Crashed, Worth(1.0), Crashed, Worth(2.0)]


async def test_a_worker_that_died_is_replaced_without_loading_anything_again(
    open_pool: Any,
) -> None:
    async with open_pool() as pool:
        nursery = psutil.Process(pool.pids[0]).parent()
        await scores(pool, *["leave"] * 20)
        await scores(pool, "1")
        assert psutil.Process(pool.pids[0]).parent() == nursery


async def test_a_nursery_that_died_is_replaced_too(open_pool: Any) -> None:
    async with open_pool() as pool:
        first = psutil.Process(pool.pids[0])
        _nursery(first).kill()
        assert await scores(pool, "1", "2") == [Worth(1.0), Worth(2.0)]
        await asyncio.to_thread(first.wait, 60)  # all that it forked goes with it


async def test_a_function_that_was_changed_is_not_taken_for_the_one_before(
    open_pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = tmp_path / "judge_that_changes.py"
    module.write_text("def one(**_):\n    return 1.0\n")
    component = {"type": "function", "name": "f", "entry_point": "judge_that_changes:one"}
    with pytest.RaisesGroup(pytest.RaisesExc(Permanent, match="judge_that_changes:one: changed")):
        async with open_pool(component) as pool:
            module.write_text("def one(**_):\n    return 0.5\n")
            worker = psutil.Process(pool.pids[0])
            _nursery(worker).kill()
            await asyncio.to_thread(worker.wait, 60)
            await scores(pool, "1", "2")


async def test_threads_of_a_rewards_module_run_in_its_workers(open_pool: Any) -> None:
    threaded = {"type": "function", "name": "f", "entry_point": "ebbtide.testing.threaded:alive"}
    async with open_pool(threaded) as pool:
        assert await scores(pool, "any") == [Worth(1.0)]


async def test_an_idle_worker_that_dies_is_replaced_unnoticed(open_pool: Any) -> None:
    async with open_pool() as pool:
        os.kill(pool.pids[0], signal.SIGKILL)
        assert await scores(pool, "1", "2") == [Worth(1.0), Worth(2.0)]


@pytest.mark.parametrize("which", ["worker", "guard"])
async def test_a_worker_killed_from_outside_costs_its_answer_nothing(
    open_pool: Any, which: str
) -> None:
    async with open_pool(seconds=60) as pool:
        task = asyncio.ensure_future(pool.score(answer("hang")))
        await asyncio.sleep(0.3)
        first = pool.pids[0]
        [worker] = psutil.Process(first).children()
        os.kill(worker.pid if which == "worker" else first, signal.SIGKILL)
        async with asyncio.timeout(60):
            while not set(pool.pids) - {first}:
                await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()


async def test_too_much_memory_is_the_answers_fault_and_not_the_machines(open_pool: Any) -> None:
    async with open_pool() as pool:
        assert await scores(pool, "memory", "1") == [Worth(0.0, fault="memory"), Worth(1.0)]


async def test_what_a_function_prints_does_not_disturb(open_pool: Any) -> None:
    async with open_pool() as pool:
        assert await scores(pool, "print", "2") == [Worth(1.0), Worth(2.0)]


async def test_a_function_sees_no_settings_of_the_service(
    open_pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBBTIDE_NATS_PASSWORD", "secret")
    async with open_pool() as pool:
        environment = psutil.Process(pool.pids[0]).environ()
    assert "secret" not in environment.values()


async def test_a_function_that_cannot_be_had_is_refused_at_start(open_pool: Any) -> None:
    missing = {"type": "function", "name": "f", "entry_point": "nowhere:f"}
    with pytest.RaisesGroup(pytest.RaisesExc(Refused, match="cannot load nowhere:f")):
        async with open_pool(missing):
            pass


async def test_no_worker_outlives_the_pool(open_pool: Any) -> None:
    async with open_pool(workers=2, seconds=60) as pool:
        pids = pool.pids
        hanging = asyncio.ensure_future(pool.score(answer("hang")))
        await asyncio.sleep(0.3)
        hanging.cancel()
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_what_a_function_left_behind_dies_with_its_worker(open_pool: Any) -> None:
    async with open_pool(workers=2) as pool:
        [daemon] = await scores(pool, "daemon")
        assert psutil.pid_exists(int(daemon.value))
    assert not psutil.pid_exists(int(daemon.value))


async def test_what_a_function_left_behind_dies_with_a_worker_that_crashes(open_pool: Any) -> None:
    async with open_pool() as pool:
        [daemon] = await scores(pool, "daemon")
        assert await scores(pool, "crash", "1") == [Crashed, Worth(1.0)]
        assert not psutil.pid_exists(int(daemon.value))


async def test_a_function_that_stops_its_guard_is_ended_at_its_limit(open_pool: Any) -> None:
    async with open_pool(seconds=2.0) as pool:
        assert await scores(pool, "stop the guard", "1") == [TimedOut, Worth(1.0)]


async def test_a_stopped_clock_blames_nobody(open_pool: Any) -> None:
    async with open_pool(seconds=2.0) as pool:
        [worker] = psutil.Process(pool.pids[0]).children()
        worker.suspend()
        task: asyncio.Future[Verdict] = asyncio.ensure_future(pool.score(answer("1")))
        await asyncio.sleep(0.1)
        _freeze_this_process(3.0)
        worker.resume()
        assert await task == Judged((Worth(1.0),), (task.result().seconds[0],))  # type: ignore[union-attr]


def _freeze_this_process(seconds: float) -> None:
    """As if the service were paused: the loop does not turn."""
    time.sleep(seconds)


async def test_unusable_is_told_apart_from_wrong(open_pool: Any) -> None:
    async with open_pool() as pool:
        assert await scores(pool, "raise") == [Unusable("ZeroDivisionError: division by zero")]
