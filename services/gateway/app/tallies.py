"""Sums over step reports, kept by job, so that each report is read once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from ebbtide import paths
from ebbtide.ports import Blobs, Resource
from ebbtide.reports import StepReport
from ebbtide.status import Progress, read
from services.gateway.core.tally import Tally, counts

_KEPT = 128


class Tallies:
    """By job uid; each call reads only what is new."""

    def __init__(self, *, blobs: Blobs) -> None:
        self._blobs = blobs
        self._kept: OrderedDict[str, tuple[Tally, asyncio.Lock]] = OrderedDict()

    async def of(self, job: Resource) -> Tally:
        """Sums over the job's committed steps."""
        uid, progress = job.metadata.uid, read(job.status, "progress", Progress)
        tally, lock = self._kept.setdefault(uid, (Tally(progress.attempt), asyncio.Lock()))
        if tally.attempt != progress.attempt:  # steps may have been undone: count anew
            tally, lock = self._kept[uid] = (Tally(progress.attempt), asyncio.Lock())
        self._kept.move_to_end(uid)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        async with lock:
            await self._catch_up(uid, tally, progress)
        return tally

    async def _catch_up(self, uid: str, tally: Tally, progress: Progress) -> None:
        for path in await self._blobs.list(paths.step_reports(uid)):
            if paths.step_of(path) not in tally.steps:
                report = StepReport.model_validate_json(await self._blobs.get(path))
                if counts(report, attempt=progress.attempt, committed=progress.step):
                    tally.add(report)
