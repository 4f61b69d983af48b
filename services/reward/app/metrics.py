"""What a scorer counts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from ebbtide.rewards.outcomes import Broken, Judged, Unusable
from ebbtide.spec import Component
from ebbtide.wire import Score, Value

_VALUES = (-1.0, -0.5, 0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_QUICK = (1e-5, 1e-4, 1e-3, *SECONDS)


class RewardMetrics:
    """Per component: its values, its seconds, and what kept it from a value."""

    def __init__(self, *, registry: CollectorRegistry, components: Sequence[Component]) -> None:
        names = [component.name for component in components]
        values = Histogram(
            "ebbtide_reward_component_value",
            "Value of a component before its weight",
            ["component"],
            buckets=_VALUES,
            registry=registry,
        )
        seconds = Histogram(
            "ebbtide_reward_component_seconds",
            "Time to judge one answer by one component",
            ["component"],
            buckets=_QUICK,
            registry=registry,
        )
        self._components = [(n, values.labels(n), seconds.labels(n)) for n in names]
        self._failures = Counter(
            "ebbtide_reward_component_failures",
            "Answers for which a component had no value: invalid or error; or had a fault",
            ["component", "kind"],
            registry=registry,
        )
        self._scores = Counter(
            "ebbtide_reward_scores", "Scores published", ["outcome", "fault"], registry=registry
        )
        self._tries = Counter(
            "ebbtide_reward_errors", "Failed tries, repeated or not", ["class"], registry=registry
        )
        self.in_flight = Gauge(
            "ebbtide_reward_in_flight", "Answers taken and not yet settled", registry=registry
        )
        self.breaker_open = Gauge(
            "ebbtide_reward_breaker_open", "1 while intake is stopped by errors", registry=registry
        )

    def judged(self, judged: Judged) -> None:
        """Count what each component said."""
        said = zip(self._components, judged.outcomes, judged.seconds, strict=True)
        for (name, values, times), outcome, seconds in said:
            times.observe(seconds)
            if isinstance(outcome, Unusable | Broken):
                kind = "invalid" if isinstance(outcome, Unusable) else "error"
                self._failures.labels(name, kind).inc()
                continue
            values.observe(outcome.value)
            if outcome.fault:
                self._failures.labels(name, outcome.fault).inc()

    def failed(self, error_class: str) -> None:
        """Count a try that ended in an infrastructure error."""
        self._tries.labels(error_class).inc()

    def published(self, score: Score) -> None:
        """Count a score by what it is."""
        fault = score.fault if isinstance(score, Value) else ""
        self._scores.labels(type(score).__name__.lower(), fault).inc()
