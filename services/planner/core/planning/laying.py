"""A whole step laid out: the plan with groups kept together, or split where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.actor_count import Plan, plan
from services.planner.core.planning.assignment import Kind
from services.planner.core.planning.demand import from_forecast
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import Pool
from services.planner.core.planning.profile import Profile
from services.planner.core.planning.rollout_time import rollout_time
from services.planner.core.prediction.forecast import Forecast

Ints = npt.NDArray[np.integer[Any]]

_FEW_GROUPS = 4
"""Up to so many groups per actor it is weighed whether to split them."""
_SPLIT_GAIN = 0.02
"""Share of the score that splitting groups must gain."""


@dataclass(frozen=True)
class ActorModel:
    """What predictions need of an actor. `per_sample`: seconds to admit one.

    Siblings on one actor share what the first one takes.
    """

    profile: Profile
    slots: int
    prompt_tokens: float
    per_sample: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Laid:
    """`together`: whether the samples of a group stay on one actor."""

    plan: Plan
    together: bool


def lay_out(
    forecast: Forecast,
    group_of: Ints,
    *,
    pool: Pool,
    terms: Terms,
    actor: ActorModel,
    limit: float | None,
    kinds: Sequence[Kind] = ("unequal",),
    counts: Sequence[int] | None = None,
) -> Laid:
    """Groups together; split where there are few per actor and splitting gains.

    `group_of` (samples,): group of each row of `forecast`. `counts`: weigh these alone.
    """
    count = len(np.unique(group_of))

    def planned(groups: Ints | None) -> Plan:
        demand = from_forecast(forecast, limit=limit, groups=groups)
        shared = 1.0 if groups is None else count / max(len(group_of), 1)
        model = rollout_time(
            actor.profile,
            demand,
            slots=actor.slots,
            prompt_tokens=actor.prompt_tokens,
            per_sample=actor.per_sample * shared,
        )
        return plan(
            demand=demand,
            time=model,
            pool=pool,
            terms=terms,
            kinds=kinds,
            counts=counts,
            profile=actor.words,
        )

    whole = Laid(planned(group_of), True)
    if count > _FEW_GROUPS * max(pool.maximum, 1):
        return whole
    split = Laid(planned(None), False)
    gains = worth(split.plan, terms) < worth(whole.plan, terms) * (1 - _SPLIT_GAIN)
    return split if gains else whole


def worth(planned: Plan, terms: Terms) -> float:
    """Time and actor-seconds of the chosen candidate in one figure; infinite without one."""
    chosen = planned.decision.chosen
    of_time, of_actors = terms.weights()
    return of_time * chosen.seconds + of_actors * chosen.actor_seconds if chosen else np.inf
