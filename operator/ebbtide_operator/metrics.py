"""What the operator shows at /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry

from ebbtide import labels
from ebbtide.catalogue import OPERATOR, Instruments
from ebbtide.objects import unix_time
from ebbtide_operator.podspec import PodView

JobKey = tuple[str, str]
_KILLED = 9


class OperatorMetrics:
    """`since`: Unix time from which starts and ends of pods are counted; older ones others saw."""

    def __init__(self, registry: CollectorRegistry, *, since: float) -> None:
        make = Instruments(registry, OPERATOR)
        self._since = since
        self._told: dict[str, set[str]] = {}
        self._shown: set[tuple[str, str]] = set()
        self._passes = make.counter("ebbtide_operator_passes_total")
        self._seconds = make.histogram("ebbtide_operator_pass_seconds")
        self._queued = make.gauge("ebbtide_operator_queued_jobs")
        self._age = make.gauge("ebbtide_operator_reconcile_age_seconds")
        self._events = make.counter("ebbtide_operator_events_total")
        self._pods = make.gauge("ebbtide_operator_pods")
        self._pending = make.gauge("ebbtide_operator_oldest_pending_seconds")
        self._starts = make.summary("ebbtide_operator_pod_start_seconds")
        self._timeouts = make.counter("ebbtide_operator_drain_timeouts_total")

    def passed(self, outcome: str, seconds: float) -> None:
        """A look at a job has ended. outcome: done | conflict | retry | unjudged."""
        self._passes.labels(outcome).inc()
        self._seconds.observe(seconds)

    def told(self, reason: str) -> None:
        """Users were told of something."""
        self._events.labels(reason).inc()

    def saw(self, pods: Iterable[PodView], now: float) -> None:
        """Count each pod's start by stage, and an end by force; once each. `now`: Unix time."""
        for pod in pods:
            if unix_time(pod.resource.metadata.creation_timestamp) >= self._since:
                known = self._told.setdefault(pod.uid, set())
                for stage, seconds in _starts(pod, now).items():
                    if stage not in known:
                        known.add(stage)
                        self._starts.labels(pod.label(labels.ROLE), stage).observe(seconds)
                if pod.leaving and pod.status.signal == _KILLED and "killed" not in known:
                    known.add("killed")
                    self._timeouts.labels(pod.label(labels.ROLE)).inc()

    def shows(self, pods: Sequence[PodView], *, queued: int, age: float, now: float) -> None:
        """How things are. `age`: of the look that is longest ago, seconds; `now`: Unix time."""
        self._queued.set(queued)
        self._age.set(age)
        counted = Counter((pod.label(labels.ROLE), pod.status.phase) for pod in pods)
        self._shown |= set(counted)
        for shown in self._shown:
            self._pods.labels(*shown).set(counted[shown])
        waits = [now - unix_time(p.resource.metadata.creation_timestamp) for p in _pending(pods)]
        self._pending.set(max(waits, default=0.0))
        there = {pod.uid for pod in pods}
        self._told = {uid: known for uid, known in self._told.items() if uid in there}


def _starts(pod: PodView, now: float) -> Mapping[str, float]:
    """Seconds of each stage of the start that is behind the pod."""
    status = pod.status
    if not status.started_at:
        return {}
    started = unix_time(status.started_at)
    created = unix_time(pod.resource.metadata.creation_timestamp)
    found = {"scheduled": max(0.0, started - created)}
    return found | ({"ready": max(0.0, now - started)} if status.ready else {})


def _pending(pods: Iterable[PodView]) -> Iterable[PodView]:
    return (pod for pod in pods if pod.alive and pod.status.phase == "Pending")
