from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.planning.assignment import (
    KINDS,
    Assignment,
    Kind,
    assign,
    equal_count,
    lpt,
    round_robin,
    top_k_isolation,
    unequal,
)
from services.planner.core.planning.demand import Demand, from_lengths
from services.planner.core.planning.rollout_time import RolloutTime, rollout_time
from tests.unit.planner.planning.samples import profile

kinds = st.sampled_from(KINDS)
many_lengths = st.lists(st.integers(1, 4000), min_size=1, max_size=300)


def _time(demand: Demand) -> RolloutTime:
    return rollout_time(profile(), demand, slots=64)


def _seconds(assignment: Assignment, demand: Demand) -> list[float]:
    shares = demand.shares_of(assignment.actor_of, assignment.actors)
    return _time(demand).shares(demand, shares).seconds().tolist()


@settings(max_examples=30)
@given(many_lengths, st.integers(1, 40), kinds)
def test_every_sample_is_on_exactly_one_actor(lengths: list[int], n: int, kind: Kind) -> None:
    demand = from_lengths(lengths)
    whole = assign(kind, demand, n, time=_time(demand))
    assert whole.actors == min(n, len(lengths))
    every = np.concatenate([whole.samples(a) for a in range(whole.actors)])
    assert sorted(every.tolist()) == list(range(len(lengths)))
    assert set(whole.actor_of.tolist()) == set(range(whole.actors))


@settings(max_examples=30)
@given(many_lengths, st.integers(1, 8), st.integers(1, 12), kinds)
def test_siblings_stay_together_where_asked(
    lengths: list[int], size: int, n: int, kind: Kind
) -> None:
    groups = np.arange(len(lengths)) // size
    demand = from_lengths(lengths, groups=groups)
    whole = assign(kind, demand, n, time=_time(demand))
    for group in set(groups.tolist()):
        assert len(set(whole.actor_of[groups == group].tolist())) == 1


@settings(max_examples=30)
@given(many_lengths, st.integers(1, 20))
def test_equal_count_is_sorted_and_equal(lengths: list[int], n: int) -> None:
    whole = equal_count(from_lengths(lengths), n)
    counts = np.bincount(whole.actor_of)
    assert counts.max() - counts.min() <= 1
    parts = [np.asarray(lengths)[whole.samples(a)] for a in range(whole.actors)]
    assert all(a.min() >= b.max() for a, b in pairwise(parts))


def test_unequal_isolates_the_extreme_and_is_faster_than_equal_count() -> None:
    demand = from_lengths([8000, 7000] + [100 + i for i in range(62)])
    ours = unequal(demand, 4, time=_time(demand))
    assert min(np.bincount(ours.actor_of)) == 1
    assert max(_seconds(ours, demand)) < max(_seconds(equal_count(demand, 4), demand))


@settings(max_examples=30)
@given(many_lengths, st.integers(1, 6))
def test_no_sorted_split_beats_unequal(lengths: list[int], n: int) -> None:
    demand = from_lengths(lengths[:60])
    ours = max(_seconds(unequal(demand, n, time=_time(demand)), demand))
    assert ours <= max(_seconds(equal_count(demand, n), demand)) * (1 + 1e-4)


def test_lpt_balances_tokens() -> None:
    lengths = [70, 60, 50, 40, 30]
    whole = lpt(from_lengths(lengths), 2)
    assert sorted(np.bincount(whole.actor_of, weights=lengths)) == [110, 140]


def test_round_robin_ignores_predictions() -> None:
    assert round_robin(from_lengths([5, 900, 7, 8, 9]), 2).actor_of.tolist() == [0, 1, 0, 1, 0]


def test_top_k_takes_the_extremes_away_from_the_others() -> None:
    demand = from_lengths([100] * 30 + [9000, 8000])
    whole = top_k_isolation(demand, 3, time=_time(demand))
    assert {30, 31} <= set(whole.samples(0).tolist())
    assert len(whole.samples(0)) < 5


def test_all_lengths_equal_spread_evenly() -> None:
    whole = unequal(demand := from_lengths([500] * 128), 4, time=_time(demand))
    assert np.bincount(whole.actor_of).max() <= 101  # the knee: up to there a sample costs nothing
    assert max(_seconds(whole, demand)) == pytest.approx(
        max(_seconds(equal_count(demand, 4), demand)), rel=0.02
    )


def test_no_samples_need_no_actor() -> None:
    demand = from_lengths([])
    assert all(assign(k, demand, 3, time=_time(demand)).actors == 0 for k in KINDS)


def test_an_assignment_to_no_actor_is_refused() -> None:
    with pytest.raises(Refused, match="needs an actor"):
        equal_count(from_lengths([1]), 0)
