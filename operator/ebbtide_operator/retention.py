"""Removes what retention lets go of, now and then, while the lease is held.

Which jobs are over is written beside their data (`paths.ended`) before their objects can go, so a
store that several installations share is never judged by what one of them happens to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ebbtide import labels, paths
from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.ports import Blobs, Clock, Resource, Stored
from ebbtide_operator.cache import Cache
from ebbtide_operator.core.plan import Note
from ebbtide_operator.core.retention import (
    Ended,
    Held,
    Limits,
    Removal,
    ending,
    next_look,
    step,
)
from ebbtide_operator.lease import Lease, Lost

AT_ONCE = 16
"""Deletions side by side."""
MOST = 20_000
"""Objects of a job that go in one sweep: the others wait for the next."""
Tell = Callable[[Resource | None, Note], Awaitable[None]]


class Retention:
    """`namespace`: the one whose jobs are looked after, None for all. `tell`: makes an event."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        cache: Cache,
        clock: Clock,
        lease: Lease,
        limits: Limits,
        namespace: str | None,
        tell: Tell,
        log: Log,
    ) -> None:
        self._blobs, self._cache, self._clock, self._lease = blobs, cache, clock, lease
        self._limits, self._namespace, self._tell, self._log = limits, namespace, tell, log
        self._noted: dict[str, Ended] = {}
        self._next: dict[str, float] = {}

    async def note(self, job: Resource | None) -> None:
        """Write down that the job is over, if it is; before its object may go."""
        ended = ending(job) if job is not None else None
        if ended is None or self._noted.get(ended.job_uid) == ended:
            return
        self._lease.check()
        await self._blobs.put(paths.ended(ended.job_uid), msgspec.json.encode(ended))
        self._noted[ended.job_uid] = ended
        self._next.pop(ended.job_uid, None)

    async def run(self, seconds: float) -> None:
        """Sweep every `seconds`, for ever; what cannot be done now is done later."""
        while True:
            await self._clock.sleep(seconds)
            try:
                await self.sweep()
            except Lost:
                raise
            except EbbtideError as error:
                self._log.warning("retention did not finish; trying again", why=str(error))

    async def sweep(self) -> None:
        """Remove what may go of every ended job."""
        if not self._cache.heard:
            return
        for path in await self._blobs.list(paths.endings()):
            uid = path.rpartition("/")[2].removesuffix(".json")
            if self._next.get(uid, 0.0) <= self._clock.wall():
                await self._look(msgspec.json.decode(await self._blobs.get(path), type=Ended))

    async def _look(self, ended: Ended) -> None:
        if self._namespace not in (None, ended.namespace):
            return
        job = self._job(ended)
        if job is not None and (now := ending(job)) is not None:
            ended = now  # somebody may have marked it since, or taken the mark away
        held = Held(ended, running=self._runs(ended, job))
        if held.protected:
            return
        held = Held(
            ended,
            logs=await self._blobs.described(paths.logs(ended.job_uid)),
            samples=await self._blobs.described(paths.samples(ended.job_uid)),
        )
        gone: set[str] = set()
        for removal in step([held], self._clock.wall(), self._limits):
            gone = await self._remove(removal, job)
        await self._rest(_without(held, gone))

    async def _rest(self, left: Held) -> None:
        """Remember when the next look is due; forget a job of which nothing can go any more."""
        self._next[left.ended.job_uid] = next_look(left, self._limits)
        if self._limits.all_go and not left.logs and not left.samples:
            await self._blobs.delete(paths.ended(left.ended.job_uid))

    async def _remove(self, removal: Removal, job: Resource | None) -> set[str]:
        """Delete, and say so; returns the paths that are gone."""
        everything = (*removal.logs, *removal.samples)[:MOST]
        gone: set[str] = set()
        try:
            for first in range(0, len(everything), AT_ONCE):
                self._lease.check()
                batch = everything[first : first + AT_ONCE]
                await asyncio.gather(*(self._blobs.delete(one.path) for one in batch))
                gone |= {one.path for one in batch}
        finally:
            if gone:
                await self._say(removal, gone, job)
        return gone

    async def _say(self, removal: Removal, gone: set[str], job: Resource | None) -> None:
        logs = [one for one in removal.logs if one.path in gone]
        samples = [one for one in removal.samples if one.path in gone]
        size = sum(one.size for one in (*logs, *samples))
        ended = removal.ended
        self._log.info(
            "retention removed what was kept",
            job=ended.job,
            job_uid=ended.job_uid,
            logs=len(logs),
            samples=len(samples),
            bytes=size,
        )
        words = f"removed {len(logs)} parts of logs and {len(samples)} objects of samples"
        await self._tell(job, Note("Reclaimed", f"{words}, {size} bytes"))

    def _job(self, ended: Ended) -> Resource | None:
        """The very job, if its object is still there."""
        job = self._cache.observe((ended.namespace, ended.job)).job
        return job if job is not None and job.metadata.uid == ended.job_uid else None

    def _runs(self, ended: Ended, job: Resource | None) -> bool:
        """Whether a pod lives, or the object does not say that the job is over."""
        pods = self._cache.observe((ended.namespace, ended.job)).pods
        mine = [pod for pod in pods if pod.label(labels.JOB_UID) == ended.job_uid]
        return any(not pod.finished for pod in mine) or (job is not None and ending(job) is None)


def _without(held: Held, gone: set[str]) -> Held:
    def left(found: Sequence[Stored]) -> list[Stored]:
        return [one for one in found if one.path not in gone]

    return Held(held.ended, logs=left(held.logs), samples=left(held.samples))
