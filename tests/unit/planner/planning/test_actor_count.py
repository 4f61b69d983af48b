from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.planning.actor_count import Plan, plan, thinned
from services.planner.core.planning.assignment import KINDS, Kind
from services.planner.core.planning.demand import Demand, from_forecast, from_lengths
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import Loading, Member, Pool, make_pool, release
from services.planner.core.planning.record import Lambda, ValueOfTime, in_words
from services.planner.core.planning.rollout_time import rollout_time
from tests.unit.planner.planning.samples import lengths_like_gsm8k, profile

MONEY = Terms(ValueOfTime(), actor_per_hour=3.6, held_per_hour=36.0)
NO_PRICE = Terms(ValueOfTime(hour_worth=50.0), actor_per_hour=None, held_per_hour=36.0)
STEP = from_forecast(lengths_like_gsm8k(256), limit=2048)


def _pool(
    low: int = 0,
    high: int = 16,
    *,
    serving: int = 0,
    parked: int = 0,
    loading: tuple[Loading, ...] = (),
    quota: int | None = None,
    lead: float = 0.0,
) -> Pool:
    return make_pool(
        minimum=low,
        maximum=high,
        serving=serving,
        parked=parked,
        loading=loading,
        quota=quota,
        profile=profile(),
        now=100.0,
        lead=lead,
    )


def _plan(
    demand: Demand, pool: Pool, terms: Terms = MONEY, kinds: tuple[Kind, ...] = ("unequal",)
) -> Plan:
    time = rollout_time(profile(), demand, slots=64, prompt_tokens=100)
    return plan(demand=demand, time=time, pool=pool, terms=terms, kinds=kinds)


def _covers(found: Plan, samples: int) -> bool:
    whole = found.assignment
    return whole is not None and np.bincount(whole.actor_of).sum() == samples


# --- edges: a plan for everything, with its reason -------------------------------------------


def test_without_history_the_pool_is_held() -> None:
    found = plan(demand=None, time=None, pool=_pool(serving=5), terms=MONEY)
    assert (found.decision.rule, found.decision.actors, found.assignment) == ("held", 5, None)
    assert "no forecast" in found.decision.reason


def test_without_a_profile_the_pool_is_held_within_its_bounds() -> None:
    found = plan(demand=STEP, time=None, pool=_pool(2, 4, serving=9), terms=MONEY)
    assert found.decision.actors == 4
    assert "no profile" in found.decision.reason


def test_one_prompt_takes_one_actor() -> None:
    found = _plan(from_lengths([700] * 8, groups=[0] * 8), _pool(serving=4))
    assert found.decision.actors == 1
    assert _covers(found, 8)


def test_a_pool_of_one_actor_takes_everything() -> None:
    found = _plan(STEP, _pool(1, 1, serving=1))
    assert found.decision.actors == 1
    assert _covers(found, 256)


def test_the_count_never_leaves_the_bounds() -> None:
    dear_time = Terms(ValueOfTime(), actor_per_hour=0.01, held_per_hour=1e6)
    dear_actors = Terms(ValueOfTime(), actor_per_hour=1e6, held_per_hour=0.01)
    few = _plan(STEP, _pool(2, 8, serving=8), dear_actors).decision
    many = _plan(STEP, _pool(2, 8, serving=8), dear_time).decision
    assert few.actors == 2
    assert many.actors == 8


def test_the_count_never_exceeds_the_quota() -> None:
    dear_time = Terms(ValueOfTime(), actor_per_hour=0.01, held_per_hour=1e6)
    assert _plan(STEP, _pool(0, 16, quota=3), dear_time).decision.actors == 3


def test_a_quota_of_nothing_holds_and_says_so() -> None:
    found = _plan(STEP, _pool(0, 16, quota=0))
    assert (found.decision.actors, found.assignment) == (0, None)
    assert "allows no actor" in found.decision.reason


def test_all_lengths_equal_are_planned() -> None:
    found = _plan(from_lengths([500] * 256), _pool(serving=4))
    assert _covers(found, 256)
    assert found.decision.chosen is not None


def test_one_extreme_length_stands_alone() -> None:
    found = _plan(from_lengths([8000] + [100] * 255), _pool(serving=8))
    assert found.assignment is not None
    alone = found.assignment.actor_of[0]
    assert (found.assignment.actor_of == alone).sum() < 64


def test_lengths_at_the_limit_are_planned() -> None:
    found = _plan(from_lengths([2048] * 256), _pool(serving=4))
    assert found.decision.chosen is not None
    assert found.decision.chosen.seconds >= 2048 * 8e-3


def test_more_actors_than_samples_are_not_planned() -> None:
    assert _plan(from_lengths([50, 60]), _pool(high=16, serving=16)).decision.actors <= 2


def test_nothing_to_decode_needs_the_fewest_actors() -> None:
    found = _plan(from_lengths([]), _pool(1, 16, serving=4))
    assert (found.decision.rule, found.decision.actors) == ("idle", 1)


def test_a_missing_price_is_unknown_and_members_count_alike() -> None:
    found = _plan(STEP, _pool(serving=16), NO_PRICE)
    assert found.decision.chosen is not None
    assert all(one.dollars is None for one in found.decision.candidates)
    assert "price is unknown" in found.decision.reason
    alike = Terms(ValueOfTime(), actor_per_hour=1.0, held_per_hour=1.0)
    assert found.decision.actors == _plan(STEP, _pool(serving=16), alike).decision.actors


@settings(max_examples=10)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=200), st.integers(0, 4))
def test_every_plan_is_total_and_within_bounds(lengths: list[int], serving: int) -> None:
    for kind in KINDS:
        found = _plan(from_lengths(lengths), _pool(1, 6, serving=serving), kinds=(kind,))
        assert 1 <= found.decision.actors <= 6
        assert _covers(found, len(lengths))


# --- what a plan weighs -----------------------------------------------------------------------


def test_unequal_is_chosen_over_equal_count_where_lengths_differ() -> None:
    found = _plan(STEP, _pool(serving=16), kinds=("equal-count", "unequal"))
    assert found.decision.chosen is not None
    assert found.decision.chosen.kind == "unequal"


@pytest.mark.parametrize("seed", range(4))
def test_equal_count_never_scores_better_than_unequal(seed: int) -> None:
    demand = from_forecast(lengths_like_gsm8k(200, seed=seed), limit=2048)
    both = _plan(demand, _pool(serving=16), kinds=("equal-count", "unequal")).decision
    scores = {
        k: [c.score for c in both.candidates if c.kind == k] for k in ("equal-count", "unequal")
    }
    assert min(scores["unequal"]) <= min(scores["equal-count"]) * 1.01


def test_dearer_time_never_means_fewer_actors() -> None:
    counts = [
        _plan(STEP, _pool(serving=16), Terms(ValueOfTime(), 3.6, held)).decision.actors
        for held in (0.36, 3.6, 36.0, 360.0)
    ]
    assert counts == sorted(counts)


def test_lambda_leans_to_time_or_to_cost() -> None:
    fast = _plan(STEP, _pool(serving=16), Terms(Lambda(0.99), 3.6, 36.0)).decision.chosen
    cheap = _plan(STEP, _pool(serving=16), Terms(Lambda(0.01), 3.6, 36.0)).decision.chosen
    assert fast is not None
    assert cheap is not None
    assert fast.seconds < cheap.seconds
    assert fast.actor_seconds > cheap.actor_seconds


def test_the_count_stays_where_a_change_gains_too_little() -> None:
    best = _plan(STEP, _pool(serving=16), Terms(ValueOfTime(), 3.6, 36.0, hysteresis=0.0))
    near = best.decision.actors + 1
    slow = Terms(ValueOfTime(), 3.6, 36.0, hysteresis=0.3)
    kept = _plan(STEP, _pool(serving=near), slow)
    assert (kept.decision.rule, kept.decision.actors) == ("kept", near)
    assert "would gain less than 30%" in kept.decision.reason


def test_the_count_does_not_oscillate_from_step_to_step() -> None:
    serving, moves = 16, 0
    for seed in range(10):
        demand = from_forecast(lengths_like_gsm8k(256, seed=seed), limit=2048)
        chosen = _plan(demand, _pool(serving=serving)).decision.actors
        moves += chosen != serving
        serving = chosen
    assert moves <= 2


def test_a_visible_cold_start_is_not_worth_it_for_one_step() -> None:
    once = Terms(ValueOfTime(), 3.6, 36.0, horizon=1)
    warm = _plan(STEP, _pool(serving=16), once).decision.actors
    cold = _plan(STEP, _pool(serving=1), once).decision.actors
    assert cold < warm


def test_a_longer_horizon_pays_for_starts() -> None:
    counts = [
        _plan(STEP, _pool(serving=1), Terms(ValueOfTime(), 3.6, 360.0, horizon=h)).decision.actors
        for h in (1, 100)
    ]
    assert counts[0] < counts[1]


def test_hidden_starts_are_paid_once_in_the_horizon() -> None:
    first, later = (
        _plan(
            STEP, _pool(4, 4, lead=10.0), Terms(ValueOfTime(), 3600.0, 0.0, horizon=h)
        ).decision.candidates[0]
        for h in (1, 4)
    )
    assert first.score - later.score == pytest.approx(4 * 10.0 * (1 - 1 / 4))


def test_parked_actors_and_prewarming_hide_starts() -> None:
    cold, parked, early = (
        _plan(STEP, pool).decision.candidates[0]
        for pool in (_pool(4, 4), _pool(4, 4, parked=4), _pool(4, 4, lead=10.0))
    )
    assert cold.seconds == pytest.approx(cold.steady_seconds + 10.0, rel=0.01)
    assert parked.seconds == pytest.approx(parked.steady_seconds + 1.0, rel=0.01)
    assert early.seconds == early.steady_seconds
    assert early.actor_seconds == pytest.approx(cold.actor_seconds)  # loading is paid all the same


def test_loading_actors_count_until_their_deadline() -> None:
    pool = _pool(loading=(Loading(103.0, 130.0), Loading(90.0, 99.0)))
    assert pool.current == 1
    assert pool.waits[:2].tolist() == [3.0, 10.0]


def test_many_counts_are_thinned_with_both_ends_and_the_present_one() -> None:
    some = thinned(1, 256, 77)
    assert {1, 77, 256} <= set(some)
    assert len(some) < 16
    assert thinned(2, 5, 9) == [2, 3, 4, 5]


def test_crossed_bounds_are_refused() -> None:
    with pytest.raises(Refused, match="cross"):
        _pool(3, 2)


def test_the_idle_and_the_parked_are_released_first() -> None:
    members = [
        Member("a", "serving", 3),
        Member("b", "serving", 0),
        Member("c", "parked", 0),
        Member("d", "loading", 0),
        Member("e", "serving", 9),
    ]
    assert release(members, 2) == ["d", "c", "b"]
    assert release(members, 9) == []


def test_the_digest_tells_demands_apart() -> None:
    other = from_forecast(lengths_like_gsm8k(256, seed=1), limit=2048)
    assert other.digest != STEP.digest
    assert STEP.digest == from_forecast(lengths_like_gsm8k(256), limit=2048).digest


def test_a_plan_is_explained_in_words() -> None:
    words = in_words(_plan(STEP, _pool(serving=4)).decision)
    assert "actors:" in words
    assert "dollars" in words
    assert "*" in words
