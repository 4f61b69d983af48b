"""What a scorer counts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from ebbtide.catalogue import REWARD, Instruments
from ebbtide.rewards.outcomes import Broken, Judged, Unusable, Worth
from ebbtide.spec import Component
from ebbtide.wire import Score, Value


class RewardMetrics:
    """Per component: its values, its seconds, and what kept it from a value."""

    def __init__(self, *, registry: CollectorRegistry, components: Sequence[Component]) -> None:
        make = Instruments(registry, REWARD)
        names = [component.name for component in components]
        values = make.histogram("ebbtide_reward_component_value")
        seconds = make.histogram("ebbtide_reward_component_seconds")
        self._components = [(n, values.labels(n), seconds.labels(n)) for n in names]
        self._failures = make.counter("ebbtide_reward_component_failures_total")
        self._scores = make.counter("ebbtide_reward_scores_total")
        self._turns = make.counter("ebbtide_reward_turns_total")
        self._tries = make.counter("ebbtide_reward_errors_total")
        self.in_flight = make.gauge("ebbtide_reward_in_flight_samples")
        self.breaker_open = make.gauge("ebbtide_reward_breaker_open")

    def judged(self, judged: Judged) -> None:
        """Count what each component said."""
        said = zip(self._components, judged.outcomes, judged.seconds, strict=True)
        for (name, values, times), outcome, seconds in said:
            times.observe(seconds)
            if isinstance(outcome, Unusable | Broken):
                kind = "invalid" if isinstance(outcome, Unusable) else "error"
                self._failures.labels(name, kind).inc()
                continue
            assert isinstance(outcome, Worth), "a component has no reply"
            values.observe(outcome.value)
            if outcome.fault:
                self._failures.labels(name, outcome.fault).inc()

    def failed(self, error_class: str) -> None:
        """Count a try that ended in an infrastructure error."""
        self._tries.labels(error_class).inc()

    def turn(self, outcome: str) -> None:
        """Count what came of asking the environment."""
        self._turns.labels(outcome).inc()

    def published(self, score: Score) -> None:
        """Count a score by what it is."""
        fault = score.fault if isinstance(score, Value) else ""
        self._scores.labels(type(score).__name__.lower(), fault).inc()
