"""When a status is written: at once, unless only its counts of pods have changed (pure).

A pool that grows by one has a pod made, placed and ready within a moment, and each write of a
custom resource costs the API server several milliseconds: one write tells all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide_operator.worklist import JobKey

_COUNTS = {
    "RLHFJob": frozenset({"roles"}),
    "DecodePool": frozenset(
        {
            "observedGeneration",
            "replicas",
            "readyReplicas",
            "pendingReplicas",
            "drainingReplicas",
            "desiredReplicas",
            "nextIndex",
        }
    ),
}
"""Fields that may be a moment old. What says how a job stands is none of them.

A pool's `nextIndex` may be, as long as every pod with a number beyond it is there: the pods say the
same. It must be written before one of them may go.
"""
_INSTANT = 0.001
"""Not worth a wait; less may be nothing but the rounding of a sum of times."""


class Pace:
    """Remembers since when a status has been behind by counts alone, by job and kind."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[tuple[JobKey, str], float] = {}

    def wait(self, job: JobKey, kind: str, patch: Mapping[str, Any] | None, now: float) -> float:
        """Seconds for which `patch` of this status has to wait; 0: write it now."""
        if not patch or set(patch) - _COUNTS[kind]:
            self._since.pop((job, kind), None)
            return 0.0
        left = self._since.setdefault((job, kind), now) + self._seconds - now
        return left if left > _INSTANT else 0.0

    def behind(self, job: JobKey, kind: str) -> bool:
        """Whether a patch of this status waits."""
        return (job, kind) in self._since

    def written(self, job: JobKey, kind: str) -> None:
        """The status is as it should be."""
        self._since.pop((job, kind), None)

    def forget(self, job: JobKey) -> None:
        """The job is gone."""
        for kind in _COUNTS:
            self._since.pop((job, kind), None)
