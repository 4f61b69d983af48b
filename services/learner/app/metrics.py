"""What a learner shows at /metrics (rank 0)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from ebbtide.wire import Learned, Saved
from services.learner.core.desk import Outcome


class LearnerMetrics:
    """Names of `stat` are those of Learned.stats; outcome: learned | saved | a refusal's code."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stat = Gauge(
            "ebbtide_learner_stat", "A number of the last update.", ["stat"], registry=registry
        )
        self._orders = Counter(
            "ebbtide_learner_orders_total", "Work done.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "ebbtide_learner_seconds",
            "Time of one piece of work.",
            ["outcome"],
            buckets=SECONDS,
            registry=registry,
        )

    def ended(self, outcome: Outcome) -> None:
        """Count one piece of work."""
        match outcome:
            case Learned():
                for stat in outcome.stats:
                    self._stat.labels(stat.name).set(stat.value)
                self._seen("learned", outcome.seconds)
            case Saved():
                self._seen("saved", outcome.seconds)
            case _:
                self._orders.labels(outcome.code).inc()

    def _seen(self, outcome: str, seconds: float) -> None:
        self._orders.labels(outcome).inc()
        self._seconds.labels(outcome).observe(seconds)
