"""Writes how long pods were held: in a pass what has ended, beside all passes what goes on.

A pod's file is written over, so its end waits for a write of the same file that is under way. That
a pod lives nobody waits for: a slow store then makes that news late, and no change of a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from ebbtide import paths, usage
from ebbtide.errors import EbbtideError, Temporary
from ebbtide.logs import Log
from ebbtide.ports import Blobs, Clock
from ebbtide.usage import Usage
from ebbtide_operator.lease import Lease, Lost
from ebbtide_operator.worklist import JobKey

AT_ONCE = 16
"""Files of pods that live, side by side: a disk commits so many about as fast as one."""
RETRY_SECONDS = 1.0


class HeldTime:
    """`seconds`: gives how old what is written of a pod that lives may be."""

    def __init__(
        self, *, blobs: Blobs, clock: Clock, lease: Lease, log: Log, seconds: Callable[[], float]
    ) -> None:
        self._blobs, self._clock, self._lease, self._log = blobs, clock, lease, log
        self._seconds = seconds
        self._written: dict[JobKey, dict[str, Usage]] = {}
        self._due: dict[str, Usage] = {}
        self._over: set[str] = set()
        self._gates: dict[str, asyncio.Lock] = {}
        self._wake = asyncio.Event()

    async def note(self, job: JobKey, usages: Sequence[Usage]) -> None:
        """Write what has ended, before it may go; the rest is written soon. Raises Temporary."""
        before = self._written.get(job, {})
        news = [held for held in usages if self._is_news(before.get(held.uid), held)]
        for held in news:
            self._due.pop(held.uid, None)
        over = [held for held in news if held.ended_at is not None]
        self._over |= {held.uid for held in over}
        await asyncio.gather(*map(self._write, over))
        self._due.update({held.uid: held for held in news if held.ended_at is None})
        self._remember(job, usages, before | {held.uid: held for held in news})
        self._wake.set()

    def _remember(self, job: JobKey, usages: Iterable[Usage], written: dict[str, Usage]) -> None:
        """Of pods that are there still."""
        left = {held.uid: written[held.uid] for held in usages}
        self._over -= self._written.pop(job, {}).keys() - left.keys()
        if left:
            self._written[job] = left

    def _is_news(self, last: Usage | None, held: Usage) -> bool:
        if last is None:
            return True
        if held.ended_at is not None:
            return held.ended_at != last.ended_at
        return held.seen_at - last.seen_at >= self._seconds()

    async def run(self) -> NoReturn:
        """Write of pods that live, for ever; raises Lost."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                await self._some()

    async def _some(self) -> None:
        now = [self._due.pop(uid) for uid in list(self._due)[:AT_ONCE]]
        done = await asyncio.gather(*map(self._write, now), return_exceptions=True)
        failed = [one for one in done if isinstance(one, BaseException)]
        if not failed:
            return
        if not all(isinstance(one, EbbtideError) and not isinstance(one, Lost) for one in failed):
            raise failed[0]
        for held, error in zip(now, done, strict=True):
            if isinstance(error, Temporary):
                self._due.setdefault(held.uid, held)
        self._log.warning("held time is not written; trying again", why=str(failed[0]))
        await self._clock.sleep(RETRY_SECONDS)

    async def _write(self, held: Usage) -> None:
        """One after the other for each pod; after its end nothing is written that it lives."""
        gate = self._gates.setdefault(held.uid, asyncio.Lock())
        try:
            async with gate:
                if held.ended_at is None and held.uid in self._over:
                    return
                self._lease.check()
                path = paths.usage(held.job_uid, held.pod, held.uid)
                await self._blobs.put(path, usage.encode(held))
        finally:
            if not gate.locked():
                self._gates.pop(held.uid, None)
