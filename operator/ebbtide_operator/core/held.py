"""Held time of pods, and the moment a pod object may go (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from ebbtide import labels
from ebbtide.objects import unix_time
from ebbtide.usage import Usage
from ebbtide_operator.core.plan import Patch
from ebbtide_operator.core.pods import POOL
from ebbtide_operator.podspec import USAGE_FINALIZER, PodView


def usages(pods: Iterable[PodView], now: float) -> tuple[Usage, ...]:
    """Held time of every pod that has started."""
    return tuple(_usage(pod, now) for pod in pods if pod.status.started_at)


def releases(pods: Iterable[PodView]) -> tuple[Patch, ...]:
    """Let go of the objects of pods that are over; their usage was written in the same pass."""
    return tuple(_release(pod) for pod in pods if _may_go(pod))


def _usage(pod: PodView, now: float) -> Usage:
    until = pod.status.finished_at
    return Usage(
        job_uid=pod.label(labels.JOB_UID),
        role=pod.label(labels.ROLE),
        pod=pod.name,
        uid=pod.uid,
        pool=pod.label(POOL),
        attempt=int(pod.label(labels.ATTEMPT) or 0),
        started_at=unix_time(pod.status.started_at),
        seen_at=unix_time(until) if until else now,
        ended_at=unix_time(until) if until else None,
    )


def _may_go(pod: PodView) -> bool:
    finalizers = pod.resource.metadata.finalizers
    if not pod.leaving or USAGE_FINALIZER not in finalizers:
        return False
    never_ran = not pod.status.started_at and finalizers == (USAGE_FINALIZER,)
    return pod.finished or never_ran


def _release(pod: PodView) -> Patch:
    left = [name for name in pod.resource.metadata.finalizers if name != USAGE_FINALIZER]
    return Patch(pod.resource, {"metadata": {"finalizers": left}})
