"""Hands answers to warm workers in batches; kills a worker that overstays on one answer.

Every answer gets exactly one verdict. When a worker dies, the answer it was at is tried once
more, alone in a fresh worker; the others of its batch just go on elsewhere. A worker that writes
what is no verdict is dead too. Time is counted in
ticks of this process's own loop: if the machine or this service stood still, nobody is blamed.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeGuard

import msgspec

from ebbtide.errors import Permanent, Temporary
from ebbtide.logs import Log
from ebbtide.rewards.outcomes import Answer, Judged
from ebbtide.spec import RewardSpec
from services.reward.core import Crashed, NoWorker, TimedOut, Verdict
from services.reward.engine.frames import Batch, FromWorker, Setup
from services.reward.engine.process import WORKER, Nursery, Worker, open_nursery
from services.reward.engine.slot import Slot

_TICKS_PER_LIMIT = 20
_LONGEST_TICK = 0.25
_SLOWEST_RESTART = 5.0


class PoolSettings(msgspec.Struct, frozen=True):
    """`limit_seconds` per answer, `start_seconds` to load; `batch`: most answers in one frame.

    `module`: what a worker judges by. `parts`: outcomes of an answer; 0: one for each component.
    """

    workers: int
    limit_seconds: float
    start_seconds: float = 120.0
    batch: int = 64
    module: str = WORKER
    parts: int = 0


class _Task:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.alone = False
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

    def settle(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class Pool:
    """Use `open_pool`. `score` may be called by many tasks at once."""

    def __init__(self, *, setup: Setup, settings: PoolSettings, log: Log) -> None:
        self._setup = setup
        self._settings = settings
        self._log = log
        self._waiting: deque[_Task] = deque()
        self._work = asyncio.Event()
        ticks = math.ceil(settings.limit_seconds / _tick_seconds(settings))
        self._parts = settings.parts or len(RewardSpec.model_validate_json(setup.reward).components)
        self._nursery: Nursery | None = None
        self._versions: Mapping[str, str] = {}
        self._opening = asyncio.Lock()
        self._slots = [Slot(patience=ticks) for _ in range(settings.workers)]

    async def score(self, answer: Answer) -> Verdict:
        """The verdict on one answer; cancelling forgets it."""
        task = _Task(answer)
        self._waiting.append(task)
        self._work.set()
        return await task.verdict

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the workers that live."""
        return tuple(slot.worker.pid for slot in self._slots if slot.worker)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Mapping[str, str]]:
        """Start all workers warm, serve, kill them at the end; gives the versions of what judges.

        Raises what `process.open_nursery` raises.
        """
        try:
            async with asyncio.TaskGroup() as starting:
                for slot in self._slots:
                    starting.create_task(self._start(slot))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._serve(slot)) for slot in self._slots]
                tasks.append(group.create_task(self._watch()))
                yield self._versions
                for task in tasks:
                    task.cancel()
        finally:
            for slot in self._slots:
                if slot.worker:
                    await slot.worker.end()
            await self._close()

    async def _start(self, slot: Slot) -> None:
        """A worker; a nursery that gives none is dying, and another is opened, once."""
        async with self._opening:
            try:
                slot.worker = await self._born()
            except Temporary:
                await self._close()
                slot.worker = await self._born()

    async def _born(self) -> Worker:
        limit = self._settings.start_seconds
        if self._nursery is None or not self._nursery.alive:
            await self._close()
            self._nursery = await open_nursery(
                self._setup, timeout=limit, module=self._settings.module
            )
        worker = await self._nursery.worker(timeout=limit)
        if changed := self._changed(worker.versions):
            await worker.end()
            raise Permanent(f"{changed}: changed since this scorer started; it must start anew")
        return worker

    def _changed(self, versions: Mapping[str, str]) -> str:
        """What differs from the first worker's: a scorer gives one digest with all its scores."""
        self._versions = self._versions or versions
        return ", ".join(name for name, one in versions.items() if self._versions.get(name) != one)

    async def _close(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            await nursery.end()

    async def _serve(self, slot: Slot) -> None:
        while True:
            batch = await self._take()
            if slot.worker is None:
                await self._restart(slot, batch)
            if slot.worker is not None:
                await self._hand_over(slot, slot.worker, batch)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_tick_seconds(self._settings))
            for slot in self._slots:
                slot.tick()

    async def _take(self) -> list[_Task]:
        """A fair share of what waits; a task on its second try comes alone."""
        while not self._waiting:
            self._work.clear()
            await self._work.wait()
        share = len(self._waiting) // len(self._slots)
        batch = [self._waiting.popleft()]
        while len(batch) < min(share, self._settings.batch) and not batch[0].alone:
            if self._waiting[0].alone:
                break
            batch.append(self._waiting.popleft())
        return [task for task in batch if not task.verdict.done()]

    async def _restart(self, slot: Slot, batch: list[_Task]) -> None:
        """A new worker, or the reason why not for each task of the batch."""
        try:
            await self._start(slot)
            slot.failed_starts = 0
        except (Temporary, ValueError) as error:
            self._log.warning("worker start failed", why=str(error))
            for task in batch:
                task.settle(NoWorker(str(error)))
            slot.failed_starts += 1
            await asyncio.sleep(min(0.1 * 2**slot.failed_starts, _SLOWEST_RESTART))

    async def _hand_over(self, slot: Slot, worker: Worker, batch: list[_Task]) -> None:
        slot.begin(len(batch))
        await worker.send(Batch(tuple(task.answer for task in batch)))
        for place, task in enumerate(batch):
            judged = await worker.receive()
            if not self._is_verdict(judged):
                slot.worker = None
                self._bury(await worker.end(), slot.overstayed, task, batch[place + 1 :])
                break
            slot.advance()
            task.settle(judged)
        slot.begin(0)

    def _is_verdict(self, message: FromWorker | None) -> TypeGuard[Judged]:
        return (
            isinstance(message, Judged)
            and len(message.outcomes) == len(message.seconds) == self._parts
        )

    def _bury(self, status: int, overstayed: bool, suspect: _Task, others: list[_Task]) -> None:
        timed_out = overstayed or status == -signal.SIGXCPU
        self._log.warning("worker died", status=status, timed_out=timed_out)
        if timed_out:
            suspect.settle(TimedOut())
        elif suspect.alone:
            suspect.settle(Crashed(status))
        else:
            suspect.alone = True
            self._waiting.appendleft(suspect)
        self._waiting.extendleft(reversed(others))
        self._work.set()


def _tick_seconds(settings: PoolSettings) -> float:
    return min(settings.limit_seconds / _TICKS_PER_LIMIT, _LONGEST_TICK)
