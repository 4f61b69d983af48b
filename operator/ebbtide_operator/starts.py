"""Starts of pods as spans of the step that was open when they were ready."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide import labels
from ebbtide.objects import unix_time
from ebbtide.ports import Resource
from ebbtide.status import Progress, read
from ebbtide.tracing import Span, Spans, StepTrace
from ebbtide_operator.podspec import PodView


class Starts:
    """Each start is told once. `since`: Unix time; starts of older pods others saw."""

    def __init__(self, spans: Spans, *, since: float) -> None:
        self._spans, self._since = spans, since
        self._told: dict[str, set[str]] = {}

    def saw(self, job: Resource | None, pods: Sequence[PodView], now: float) -> None:
        """Tell of those of the job's pods that have become ready. `now`: Unix time."""
        if job is None or not self._spans.on:
            return
        told = self._told.get(job.metadata.uid, set())
        ready = {pod.uid: pod for pod in pods if pod.status.ready and pod.status.started_at}
        for pod in (ready[uid] for uid in ready.keys() - told):
            if unix_time(pod.resource.metadata.creation_timestamp) >= self._since:
                self._spans.add(start_span(job, pod, now))
        self._told[job.metadata.uid] = (told | ready.keys()) & {pod.uid for pod in pods}


def start_span(job: Resource, pod: PodView, now: float) -> Span:
    """From the creation of the object until `now`, when it was seen ready."""
    progress = read(job.status, "progress", Progress)
    attempt = max(progress.attempt, int(pod.label(labels.ATTEMPT) or 0))
    created = unix_time(pod.resource.metadata.creation_timestamp)
    started = unix_time(pod.status.started_at)
    told = {
        "ebbtide.scheduled_seconds": max(0.0, started - created),
        "ebbtide.ready_seconds": max(0.0, now - started),
    }
    trace = StepTrace(job.metadata.uid, attempt, progress.step)
    return trace.part(pod.label(labels.ROLE), "start pod", pod.name, created, now, told)
