"""What of ended jobs is stored no longer: their state in, what may go out (pure).

Only logs and samples ever go, and only of a job that is over for good, that has no pod left, and
that nobody marked (`labels.KEEP`). Ages count from the job's end, or from an object's last write
if that came later. Ledger, reports, held time, policies and checkpoints stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ebbtide import labels, paths
from ebbtide.objects import unix_time
from ebbtide.ports import Resource, Stored
from ebbtide_operator.core.status import read_own

NEVER = float("inf")


class Limit(msgspec.Struct, frozen=True):
    """Of one kind: longest age in seconds, most bytes of one job; 0: none."""

    seconds: float = 0.0
    bytes: int = 0


class Limits(msgspec.Struct, frozen=True):
    """Nothing younger than `grace` seconds goes, however much there is."""

    logs: Limit = Limit()
    samples: Limit = Limit()
    grace: float = 86_400.0

    @property
    def all_go(self) -> bool:
        """Whether in the end nothing of either kind is left."""
        return bool(self.logs.seconds and self.samples.seconds)


NO_LIMITS = Limits()
"""Everything stays."""


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """The operator's word that a job is over for good; `at` in Unix seconds (`paths.ended`)."""

    job_uid: str
    namespace: str
    job: str
    at: float
    kept: bool = False


class Held(msgspec.Struct, frozen=True):
    """An ended job and what is stored of it. `running`: a pod of it is still there."""

    ended: Ended
    running: bool = False
    logs: Sequence[Stored] = ()
    samples: Sequence[Stored] = ()

    @property
    def protected(self) -> bool:
        """Whether nothing of it may go."""
        return self.running or self.ended.kept


class Removal(msgspec.Struct, frozen=True):
    """What may go of one job."""

    ended: Ended
    logs: tuple[Stored, ...] = ()
    samples: tuple[Stored, ...] = ()


def ending(job: Resource) -> Ended | None:
    """What is to be noted of a job: nothing while it may still run."""
    meta = job.metadata
    times = [unix_time(text) for text in (_completed(job), meta.deletion_timestamp) if text]
    if not times:
        return None
    kept = labels.KEEP in meta.annotations
    return Ended(meta.uid, meta.namespace, meta.name, min(times), kept)


def _completed(job: Resource) -> str:
    try:
        own = read_own(job)
    except msgspec.ValidationError:  # others corrupted it: nobody can say that it is over
        return ""
    return own.completion_time if own.ended else ""


def step(jobs: Iterable[Held], now: float, limits: Limits) -> tuple[Removal, ...]:
    """What may go at `now` (Unix seconds), the oldest first; jobs that lose nothing are left out."""
    found = (_of(job, now, limits) for job in jobs if not job.protected)
    return tuple(one for one in found if one.logs or one.samples)


def next_look(job: Held, limits: Limits) -> float:
    """Unix time before which another look at what is stored would find nothing to remove."""
    kinds = ((job.logs, limits.logs), (job.samples, limits.samples))
    times = [t for found, limit in kinds for t in _times(job, found, limit, limits.grace)]
    return min(times, default=NEVER)


def _times(job: Held, found: Sequence[Stored], limit: Limit, grace: float) -> Iterator[float]:
    waits = [limit.seconds] if limit.seconds else []
    waits += [0.0] if _over(found, limit) > 0 else []
    for one in found if waits else ():
        yield _since(job, one) + max(grace, min(waits))


def _of(job: Held, now: float, limits: Limits) -> Removal:
    uid = job.ended.job_uid

    def chosen(found: Sequence[Stored], prefix: str, limit: Limit) -> tuple[Stored, ...]:
        own = [one for one in found if one.path.startswith(prefix)]
        return tuple(_goes(job, own, limit, now, limits.grace))

    return Removal(
        job.ended,
        logs=chosen(job.logs, paths.logs(uid), limits.logs),
        samples=chosen(job.samples, paths.samples(uid), limits.samples),
    )


def _goes(
    job: Held, found: Sequence[Stored], limit: Limit, now: float, grace: float
) -> Iterable[Stored]:
    over = _over(found, limit)
    for one in sorted(found, key=lambda one: (one.at, one.path)):
        age = now - _since(job, one)
        old = bool(limit.seconds) and age >= limit.seconds
        if age >= grace and (old or over > 0):
            over -= one.size
            yield one


def _over(found: Sequence[Stored], limit: Limit) -> int:
    return sum(one.size for one in found) - limit.bytes if limit.bytes else 0


def _since(job: Held, one: Stored) -> float:
    return max(job.ended.at, one.at)
