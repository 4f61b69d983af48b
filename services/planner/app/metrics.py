"""What a planner counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from services.planner.core.progress import Standing


class PlannerMetrics:
    """Metrics of one planner process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "ebbtide_planner_records", "Records appended to the ledger.", registry=registry
        )
        self._append = Histogram(
            "ebbtide_planner_append_seconds",
            "Time to make one ledger segment durable.",
            buckets=SECONDS,
            registry=registry,
        )
        self._events = Counter(
            "ebbtide_planner_events", "Events that the core took in.", ["kind"], registry=registry
        )
        self._core = Counter(
            "ebbtide_planner_core_seconds", "Time spent in the core.", registry=registry
        )
        self._step = Gauge("ebbtide_job_step", "Committed steps.", registry=registry)
        self._reward = Gauge("ebbtide_job_reward", "Mean reward, last step.", registry=registry)
        self._eval = Gauge("ebbtide_job_eval_reward", "Mean held-out reward.", registry=registry)
        self._samples = Gauge(
            "ebbtide_job_samples",
            "Samples of the open step by where they are.",
            ["state"],
            registry=registry,
        )
        self._actors = Gauge("ebbtide_job_actors", "Registered actors.", registry=registry)

    def appended(self, records: int, seconds: float) -> None:
        """A segment is durable."""
        self._records.inc(records)
        self._append.observe(seconds)

    def stepped(self, kind: str, seconds: float) -> None:
        """The core took in an event."""
        self._events.labels(kind).inc()
        self._core.inc(seconds)

    def stands(self, standing: Standing) -> None:
        """How far the job is."""
        self._step.set(standing.step)
        self._actors.set(standing.actors)
        if standing.reward is not None:
            self._reward.set(standing.reward)
        if standing.eval_reward is not None:
            self._eval.set(standing.eval_reward)
        for state in ("expected", "accepted", "scored", "abandoned", "invalid"):
            self._samples.labels(state).set(getattr(standing, f"samples_{state}"))
