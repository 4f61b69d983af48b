"""One look at a job: everything that a decision may depend on, typed (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ebbtide import labels, status
from ebbtide.ports import Resource
from ebbtide_operator.core.pods import DECODE, INDEX, LEARNER, PLANNER, PREFILL, REWARD, Cast
from ebbtide_operator.core.status import Own
from ebbtide_operator.podspec import PodView

_OVERDUE = 10.0


class Observed(msgspec.Struct, frozen=True):
    """Objects of one job as the cache has them; `job` is None once it is gone."""

    job: Resource | None
    pool: Resource | None = None
    pods: tuple[PodView, ...] = ()
    interrupted: Mapping[str, str] = {}
    """Why a node is about to go, by its name."""
    runtime: Resource | None = None
    """The ClusterRLHFRuntime that the job names, if there is one."""
    refused: str = ""
    """Why a pod could not be made the last time, if so."""


class Look(msgspec.Struct, frozen=True):
    """What is known at `now` (Unix seconds)."""

    cast: Cast
    pool: Resource | None
    pods: tuple[PodView, ...]
    now: float
    interrupted: Mapping[str, str] = {}
    refused: str = ""

    @property
    def progress(self) -> status.Progress:
        """As the planner reported it."""
        return status.read(self.cast.job.status, "progress", status.Progress)

    @property
    def cost(self) -> status.CostStatus:
        """As the planner reported it."""
        return status.read(self.cast.job.status, "cost", status.CostStatus)

    @property
    def prefilled(self) -> bool:
        """Whether there is to be a prefill service: by the job, or as the planner chose."""
        mode = self.cast.spec.prefill.mode
        chosen = status.read(self.cast.job.status, "prefill", status.PrefillStatus)
        return mode == "service" or (mode == "auto" and chosen.wanted)

    def notice(self, pod: PodView) -> str:
        """Why a living pod is about to be taken away, or empty."""
        if not pod.alive or not pod.status.started_at:
            return ""  # one that does not run yet loses nothing by staying
        return pod.status.disrupted or self.interrupted.get(pod.spec.node_name, "")

    def noticed(self, pods: Iterable[PodView]) -> frozenset[str]:
        """Names of those that are about to be taken away."""
        return frozenset(pod.name for pod in pods if self.notice(pod))

    def of(self, *roles: str) -> list[PodView]:
        """Pods of these roles."""
        return [pod for pod in self.pods if pod.label(labels.ROLE) in roles]

    def gang(self, own: Own) -> list[PodView]:
        """Learner ranks of the current attempt."""
        return [pod for pod in self.of(LEARNER) if _attempt(pod) == own.attempt]

    def planner(self, own: Own) -> list[PodView]:
        """The current planner: none or one."""
        return [
            pod
            for pod in self.of(PLANNER)
            if _attempt(pod) == own.attempt and index_of(pod) == own.planner_serial
        ]

    def superseded(self, own: Own) -> list[PodView]:
        """Planners and ranks that have been replaced."""
        current = {pod.uid for pod in (*self.gang(own), *self.planner(own))}
        return [pod for pod in self.of(PLANNER, LEARNER) if pod.uid not in current]

    def wanted(self, role: str) -> int:
        """How many pods of the role a running job has."""
        spec = self.cast.spec
        if role == LEARNER:
            return spec.learner.ranks if spec.learns else 0
        if role == PLANNER:
            return 1
        if not self.cast.scores:
            return 0
        if role == PREFILL:
            return int(self.prefilled)
        if role == REWARD:
            return spec.reward.replicas if spec.reward else 0
        assert role == DECODE
        return min(self._pool_replicas(), spec.decode.max_replicas)

    def _pool_replicas(self) -> int:
        found = self.pool.spec.get("replicas") if self.pool else None
        return found if isinstance(found, int) else self.cast.spec.decode.replicas


def index_of(pod: PodView) -> int:
    """Rank or number of a pod."""
    return int(pod.label(INDEX) or 0)


def _attempt(pod: PodView) -> int:
    return int(pod.label(labels.ATTEMPT) or 0)


def in_the_way(pods: Iterable[PodView], now: float) -> list[PodView]:
    """Pods that still run, so their successors wait; one that overran its grace is given up."""
    return [p for p in pods if not p.finished and not overdue(p, now)]


def overdue(pod: PodView, now: float) -> bool:
    """Whether the pod should be gone since long: its node may be lost."""
    return pod.leaving and pod.leaving_for(now) > pod.grace + _OVERDUE
