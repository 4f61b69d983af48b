"""What an actor costs that has ended before the others: held until the next step, or started anew."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.planner.core.planning.actor_count import Plan, plan
from services.planner.core.planning.demand import from_forecast
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import Pool, make_pool
from services.planner.core.planning.record import Lambda, ValueOfTime
from services.planner.core.planning.rollout_time import rollout_time
from tests.unit.planner.planning.samples import lengths_like_gsm8k, profile

STEP = from_forecast(lengths_like_gsm8k(256), limit=2048)
DEAR_TIME = Terms(ValueOfTime(), actor_per_hour=1.861, held_per_hour=300.0)


def _pool(
    *,
    low: int = 1,
    high: int = 16,
    patience: float = 0.0,
    after: float = 0.0,
    restart: float = 0.0,
) -> Pool:
    return make_pool(
        minimum=low,
        maximum=high,
        serving=16,
        profile=profile(),
        now=0.0,
        after=after,
        patience=patience,
        restart=restart,
    )


def _plan(pool: Pool, terms: Terms = DEAR_TIME) -> Plan:
    time = rollout_time(profile(), STEP, slots=256, prompt_tokens=100)
    return plan(demand=STEP, time=time, pool=pool, terms=terms)


def test_whoever_waits_for_a_short_while_is_held() -> None:
    pool = _pool(patience=10.0, after=2.0, restart=5.0)
    assert pool.idle(np.asarray([8.0, 5.0]), 8.0) == pytest.approx(2.0 + 5.0)


def test_whoever_would_wait_for_long_is_let_go_and_started_again() -> None:
    pool = _pool(patience=4.0, after=2.0, restart=3.0)
    assert pool.idle(np.asarray([8.0, 5.0]), 8.0) == pytest.approx(2.0 + 3.0)


def test_a_release_that_costs_nothing_costs_nothing() -> None:
    assert _pool().idle(np.asarray([8.0, 5.0, 0.0]), 8.0) == 0.0


def test_fewer_actors_are_kept_where_they_would_idle_to_the_end() -> None:
    free, held = _plan(_pool()).decision, _plan(_pool(patience=math.inf)).decision
    assert held.actors < free.actors == 16, "16 that end early were not worth a change"
    assert held.chosen is not None
    assert free.chosen is not None
    assert held.chosen.seconds <= 1.05 * free.chosen.seconds


def test_the_published_rule_counts_until_an_actor_has_ended() -> None:
    terms = Terms(Lambda(0.7), actor_per_hour=1.861, held_per_hour=300.0)
    free, held = _plan(_pool(), terms), _plan(_pool(patience=math.inf), terms)
    assert free.decision.actors == held.decision.actors


def test_a_pool_that_is_held_whole_is_charged_for_each_actor_to_the_end() -> None:
    chosen = _plan(_pool(low=3, high=3, patience=math.inf)).decision.chosen
    assert chosen is not None
    assert chosen.score == pytest.approx(chosen.seconds * (300.0 + 3 * 1.861) / 3600.0)
    assert chosen.dollars == pytest.approx(chosen.score)
