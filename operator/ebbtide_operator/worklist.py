"""Which jobs are to be looked at: each once, however often it changed, and by one pass at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

JobKey = tuple[str, str]
"""Namespace and name of a job."""


class JobQueue:
    """`now`: seconds of the clock that passes are timed by."""

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: asyncio.Queue[JobKey] = asyncio.Queue()
        self._queued: set[JobKey] = set()
        self._busy: dict[JobKey, float] = {}
        self._timers: dict[JobKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Jobs that wait for a look."""
        return len(self._queued)

    def put(self, job: JobKey) -> None:
        """Have the job looked at; one that is being looked at is looked at again after that."""
        if job not in self._queued:
            self._queued.add(job)
            if job not in self._busy:
                self._waiting.put_nowait(job)

    async def take(self) -> JobKey:
        """The next job; nobody else gets it until it is `done`."""
        job = await self._waiting.get()
        self._queued.discard(job)
        self._busy[job] = self._now()
        return job

    def done(self, job: JobKey, after: float | None) -> None:
        """The pass is over; the next is due in `after` seconds, if at all without a change."""
        del self._busy[job]
        if job in self._queued:
            self._waiting.put_nowait(job)
        known = self._timers.pop(job, None)
        if known:
            known.cancel()
        if after is not None:
            loop = asyncio.get_running_loop()
            self._timers[job] = loop.call_later(max(0.0, after), self._ring, job)

    def longest(self) -> float:
        """Seconds that the longest of the passes has taken so far."""
        now = self._now()
        return now - min(self._busy.values(), default=now)

    def _ring(self, job: JobKey) -> None:
        self._timers.pop(job, None)
        self.put(job)
