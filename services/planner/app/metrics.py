"""What a planner shows at /metrics while it runs. Totals of the job are the gateway's to show."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from ebbtide.catalogue import PLANNER, Instruments
from services.planner.core.progress import Standing


class PlannerMetrics:
    """Metrics of one planner process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Instruments(registry, PLANNER)
        self._records = make.counter("ebbtide_planner_records_total")
        self._append = make.histogram("ebbtide_planner_append_seconds")
        self._events = make.counter("ebbtide_planner_events_total")
        self._core = make.counter("ebbtide_planner_core_seconds_total")
        self._steps = make.gauge("ebbtide_planner_committed_steps")
        self._samples = make.gauge("ebbtide_planner_open_samples")
        self._actors = make.gauge("ebbtide_planner_actors")
        self._policy = make.gauge("ebbtide_planner_policy_version")
        self._facts = make.gauge("ebbtide_planner_unacknowledged_facts")
        self._age = make.gauge("ebbtide_planner_progress_age_seconds")
        self._policy.set(-1)

    def appended(self, records: int, seconds: float) -> None:
        """A segment is durable."""
        self._records.inc(records)
        self._append.observe(seconds)

    def stepped(self, kind: str, seconds: float) -> None:
        """The core took in an event."""
        self._events.labels(kind).inc()
        self._core.inc(seconds)

    def wanted(self, actors: int) -> None:
        """The plan of the open step wants so many actors."""
        self._actors.labels("wanted").set(actors)

    def stands(
        self, standing: Standing, *, policy: int, unacknowledged: int, idle_seconds: float
    ) -> None:
        """How far the job is. `idle_seconds`: since anything came of it."""
        self._steps.set(standing.step)
        self._actors.labels("registered").set(standing.actors)
        self._actors.labels("serving").set(standing.actors_serving)
        self._policy.set(policy)
        self._facts.set(unacknowledged)
        self._age.set(idle_seconds)
        for state in ("expected", "accepted", "scored", "abandoned", "invalid"):
            self._samples.labels(state).set(getattr(standing, f"samples_{state}"))
