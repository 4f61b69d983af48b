"""Performs effects in order: what must be durable is, before anybody hears of it.

Records up to the next write of a blob go into one segment, together with all that was decided
meanwhile; then whatever followed them is started, each in a task of its own. A task that fails
is not tried for ever: the core asks again for what it still needs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from ebbtide.errors import EbbtideError
from ebbtide.ledger import Ledger
from ebbtide.logs import Log
from ebbtide.ports import Clock
from ebbtide.wire import Record
from services.planner.app.errands import Errands
from services.planner.app.metrics import PlannerMetrics
from services.planner.core.effects import (
    Append,
    CommitManifest,
    Effect,
    Finish,
    LoadPrompts,
    ScalePool,
    Send,
    WriteBlob,
)

_MOST_RECORDS = 8192


class Performer:
    """`gather`: seconds for which records that nobody waits for are gathered."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        errands: Errands,
        clock: Clock,
        gather: float,
        metrics: PlannerMetrics,
        log: Log,
    ) -> None:
        self._ledger, self._errands, self._clock = ledger, errands, clock
        self._gather, self._metrics, self._log = gather, metrics, log
        self._todo: deque[Effect] = deque()
        self._news = asyncio.Event()
        self._urgent = False
        self._busy = False
        self._flushed_at = clock.now()
        self._tasks: set[asyncio.Task[None]] = set()
        self.finished: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()

    @property
    def idle(self) -> bool:
        """Whether all that was asked for is durable and begun."""
        return not self._todo and not self._busy

    def add(self, effects: Sequence[Effect], *, urgent: bool = False) -> None:
        """Have these performed after all that came before; at once if `urgent`."""
        if effects:
            self._todo.extend(effects)
            self._urgent = self._urgent or urgent or any(map(_is_urgent, effects))
            self._news.set()

    async def run(self) -> None:
        """Perform for ever; raises Fenced when the ledger has another owner."""
        while True:
            await self._news.wait()
            await self._wait_for_more()
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Perform everything that is there."""
        self._urgent, self._busy = False, True
        while self._todo:
            await self._perform_some()
        self._busy = False

    async def _perform_some(self) -> None:
        records, others = self._take()
        if records or any(isinstance(effect, Finish | ScalePool) for effect in others):
            # What has no record of its own needs an empty segment: only the ledger's owner may
            # end the job, or change its pool.
            began = self._clock.now()
            await self._ledger.append(records)
            self._metrics.appended(len(records), self._clock.now() - began)
            self._flushed_at = self._clock.now()
        for effect in others:
            self._start(effect)
        if self._todo and isinstance(self._todo[0], WriteBlob | CommitManifest):
            await self._errands.write(self._todo.popleft())

    def _take(self) -> tuple[list[Record], list[Effect]]:
        """Records up to the next write, and what else stands among them."""
        records: list[Record] = []
        others: list[Effect] = []
        while self._todo and len(records) < _MOST_RECORDS:
            effect = self._todo[0]
            if isinstance(effect, WriteBlob | CommitManifest):
                break
            self._todo.popleft()
            if isinstance(effect, Append):
                records.append(effect.record)
            else:
                others.append(effect)
        return records, others

    async def _wait_for_more(self) -> None:
        """A segment soon after another waits a moment for company, unless somebody waits for it."""
        while not self._urgent:
            left = self._flushed_at + self._gather - self._clock.now()
            if left <= 0:
                return
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    def _start(self, effect: Effect) -> None:
        if isinstance(effect, Finish):
            self.finished.set_result(effect)
            return
        work = self._errands.work(effect)
        if work is not None:
            task = asyncio.create_task(self._guard(work, effect), name=type(effect).__name__)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None], effect: Effect) -> None:
        try:
            await work
        except EbbtideError as error:
            self._log.warning("not done", what=type(effect).__name__, why=str(error))

    async def settle(self, seconds: float) -> None:
        """Wait for tasks under way, at most so long; then end them."""
        tasks = list(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()


def _is_urgent(effect: Effect) -> bool:
    return isinstance(effect, Finish | LoadPrompts) or (
        isinstance(effect, Send) and effect.call > 0
    )
