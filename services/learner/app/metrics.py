"""What a learner shows at /metrics (rank 0). What an update tells is in the figures of the job."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from ebbtide.catalogue import LEARNER, Instruments
from ebbtide.wire import Learned, Saved
from services.learner.core.desk import Outcome


class LearnerMetrics:
    """outcome: learned | saved | a refusal's code."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Instruments(registry, LEARNER)
        self._orders = make.counter("ebbtide_learner_orders_total")
        self._seconds = make.histogram("ebbtide_learner_order_seconds")
        self._policy = make.gauge("ebbtide_learner_policy_version")

    def published(self, version: int) -> None:
        """A policy is published."""
        self._policy.set(version)

    def ended(self, outcome: Outcome) -> None:
        """Count one piece of work."""
        match outcome:
            case Learned():
                self.published(outcome.policy.n)
                self._seen("learned", outcome.seconds)
            case Saved():
                self._seen("saved", outcome.seconds)
            case _:
                self._orders.labels(outcome.code).inc()

    def _seen(self, outcome: str, seconds: float) -> None:
        self._orders.labels(outcome).inc()
        self._seconds.labels(outcome).observe(seconds)
