from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.core.planning.demand import from_lengths
from services.planner.core.planning.partition import (
    Parts,
    capped,
    cheapest_by_cap,
    layered,
    parts_of,
)
from services.planner.core.planning.rollout_time import replayed_seconds, rollout_time
from tests.unit.planner.planning.samples import profile

few_lengths = st.lists(st.integers(1, 2000), min_size=1, max_size=8)


def _parts(lengths: list[int], most: int) -> Parts:
    demand = from_lengths(lengths)
    return parts_of(demand, rollout_time(profile(), demand, slots=64), most=most)


def _all_partitions(lengths: list[int], actors: int) -> list[list[float]]:
    ranked = sorted(lengths, reverse=True)
    inner = combinations(range(1, len(ranked)), actors - 1)
    return [
        [
            replayed_seconds(profile(), ranked[a:b], slots=64)
            for a, b in pairwise((0, *cuts, len(ranked)))
        ]
        for cuts in inner
    ]


@settings(max_examples=30)
@given(few_lengths, st.integers(1, 4))
def test_the_fastest_partition_is_that_of_brute_force(lengths: list[int], actors: int) -> None:
    actors = min(actors, len(lengths))
    found = layered(_parts(lengths, actors), most=actors, sums=False).best[actors]
    assert found == pytest.approx(min(max(p) for p in _all_partitions(lengths, actors)), rel=1e-4)


@settings(max_examples=30)
@given(few_lengths, st.integers(1, 4), st.floats(1.0, 2.0))
def test_the_cheapest_partition_under_a_cap_is_that_of_brute_force(
    lengths: list[int], actors: int, slack: float
) -> None:
    actors = min(actors, len(lengths))
    every = _all_partitions(lengths, actors)
    cap = slack * 1.001 * min(max(p) for p in every)
    found = layered(capped(_parts(lengths, actors), cap), most=actors, sums=True).best[actors]
    within = min(sum(p) for p in every if max(p) <= cap)
    assert found <= within * (1 + 1e-4)
    assert found >= min(sum(p) for p in every if max(p) <= cap * 1.0001) * (1 - 1e-4)


@settings(max_examples=30)
@given(few_lengths, st.floats(0, 5))
def test_a_free_number_of_actors_is_the_best_of_all_numbers(
    lengths: list[int], rent: float
) -> None:
    parts = _parts(lengths, len(lengths))
    caps = np.asarray([1e9])
    sums, actors = cheapest_by_cap(parts, caps, np.asarray([rent]))
    best = layered(parts, most=len(lengths), sums=True).best
    every = best[1:] + rent * np.arange(1, len(best))
    assert sums[0] == pytest.approx(every.min(), rel=1e-4)
    assert best[actors[0]] + rent * actors[0] == pytest.approx(sums[0], rel=1e-4)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=400), st.integers(1, 20))
def test_cuts_cover_every_rank_in_nonempty_parts(lengths: list[int], actors: int) -> None:
    actors = min(actors, len(lengths))
    found = layered(_parts(lengths, actors), most=actors, sums=False)
    for n in range(1, actors + 1):
        if np.isfinite(found.best[n]):
            cuts = found.cuts(n)
            assert (cuts[0], cuts[-1], len(cuts)) == (0, len(lengths), n + 1)
            assert (np.diff(cuts) > 0).all()


def test_one_extreme_length_gets_an_actor_of_its_own() -> None:
    found = layered(_parts([8000] + [100] * 63, 2), most=2, sums=True)
    assert found.cuts(2).tolist() == [0, 1, 64]


def test_an_impossible_cap_has_no_partition() -> None:
    sums, actors = cheapest_by_cap(_parts([500, 400], 2), np.asarray([1e-6]), np.zeros(1))
    assert not np.isfinite(sums[0])
    assert actors[0] == 0
