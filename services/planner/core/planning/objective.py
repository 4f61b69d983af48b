"""What a plan is judged by: money with the value of time, or RLHFless's weighted normal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.record import Lambda, Objective, ValueOfTime

Floats = npt.NDArray[np.floating[Any]]

_HOUR = 3600.0


@dataclass(frozen=True)
class Predicted:
    """Of one candidate, seconds. `actor_seconds` includes the `start_seconds` paid once.

    idle_seconds: what actors that have ended cost until the next step, held or started again.
    """

    actors: int
    seconds: float
    steady_seconds: float
    actor_seconds: float
    start_seconds: float
    idle_seconds: float = 0.0


@dataclass(frozen=True)
class Terms:
    """Prices per hour (None: unknown, never 0) and how steps are weighed.

    held_members, held_per_hour: what waits while actors decode (the learner's GPUs), and its price.
    horizon: steps over which a start pays. growth: factor of the lengths from step to step.
    hysteresis: share of the score that a change of the count must gain.
    """

    objective: Objective
    actor_per_hour: float | None
    held_per_hour: float | None
    held_members: float = 1.0
    horizon: int = 3
    growth: float = 1.0
    hysteresis: float = 0.05

    @property
    def priced(self) -> bool:
        """Whether every price is known."""
        return self.actor_per_hour is not None and self.held_per_hour is not None

    @property
    def words(self) -> str:
        """The objective, for people."""
        match self.objective:
            case Lambda(weight=weight):
                return f"lambda {weight:g} (normalised time against actor-seconds)"
            case ValueOfTime() if self.priced:
                return "value of time (money of actors and of what waits for them)"
        return "member-seconds, since a price is unknown (what waits and actors count alike)"

    @property
    def steps(self) -> float:
        """The horizon in steps of the present size."""
        return float(sum(self.growth**h for h in range(max(self.horizon, 1))))

    def dollars(self, seconds: float, actor_seconds: float) -> float | None:
        """Money of one step; None where a price is unknown."""
        if self.actor_per_hour is None or self.held_per_hour is None:
            return None
        return (self.actor_per_hour * actor_seconds + self.held_per_hour * seconds) / _HOUR

    def weights(self) -> tuple[float, float]:
        """What a second of the step and an actor-second weigh by `value-of-time`."""
        if self.actor_per_hour is None or self.held_per_hour is None:
            return self.held_members, 1.0
        worth = self.objective.hour_worth if isinstance(self.objective, ValueOfTime) else 0.0
        return (self.held_per_hour + worth) / _HOUR, self.actor_per_hour / _HOUR


def scores(predicted: Sequence[Predicted], terms: Terms) -> list[float]:
    """One per candidate, per step of the horizon; the smallest is the best.

    As published (`lambda`) an actor costs until it has ended; where money counts it costs for as
    long as it is held.
    """
    steps = terms.steps
    late = np.asarray(
        [(p.seconds - p.steady_seconds) / steps + p.steady_seconds for p in predicted]
    )
    start = np.asarray([p.start_seconds for p in predicted])
    held = np.asarray([p.actor_seconds for p in predicted]) - start * (1 - 1 / steps)
    if isinstance(terms.objective, ValueOfTime):
        held = held + np.asarray([p.idle_seconds for p in predicted])
    result: list[float] = weighed(late, held, terms).tolist()
    return result


def weighed(seconds: Floats, actor_seconds: Floats, terms: Terms) -> Floats:
    """The score of each candidate, by the objective."""
    if isinstance(terms.objective, Lambda):
        weight = terms.objective.weight
        return weight * _normal(seconds) + (1 - weight) * _normal(actor_seconds)
    of_time, of_actors = terms.weights()
    return of_time * seconds + of_actors * actor_seconds


def _normal(values: Floats) -> Floats:
    """Min-max normalised; all 0 where all are equal."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    result: Floats = (values - low) / (high - low) if high > low else values - low
    return result
