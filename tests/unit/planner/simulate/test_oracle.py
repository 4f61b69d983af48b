from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.core.planning.rollout_time import replayed_seconds
from services.planner.simulate.answers import Batch
from services.planner.simulate.calibration import computed_profile
from services.planner.simulate.oracle import best_partition, bound
from services.planner.simulate.play import play
from services.planner.simulate.policies import POLICIES
from services.planner.simulate.results import Inputs, comparable, policies_of, run_seed
from tests.unit.planner.simulate import small

PROFILE = computed_profile("qwen2.5-3b", "l40s")


def batch(lengths: list[int]) -> Batch:
    n = len(lengths)
    numbers = np.arange(n)
    return Batch(
        0, numbers, numbers, np.array(lengths), np.zeros(n, bool), np.full(n, 50), np.zeros(n, int)
    )


def score(lengths: list[int], actor_of: tuple[int, ...], of_time: float) -> float:
    """Told apart from the oracle's own reckoning: by the planner's iteration sum, actor by actor."""
    times = [
        replayed_seconds(PROFILE, mine, slots=8, prompt_tokens=50)
        for a in set(actor_of)
        if (mine := [length for length, of in zip(lengths, actor_of, strict=True) if of == a])
    ]
    return of_time * max(times) + sum(times)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=5), st.integers(1, 3), st.floats(0, 5))
def test_the_oracle_equals_brute_force_on_small_cases(
    lengths: list[int], most: int, of_time: float
) -> None:
    found = best_partition(
        PROFILE, batch(lengths), most=most, slots=8, of_time=of_time, of_actors=1.0
    )
    every = product(range(most), repeat=len(lengths))
    best = min(score(lengths, actor_of, of_time) for actor_of in every)
    assert score(lengths, tuple(found.tolist()), of_time) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_is_never_beaten(seed: int) -> None:
    inputs = Inputs(small.scenario())
    found = run_seed(inputs, seed, policies_of(inputs.scenario))
    fair = [p.name for p in policies_of(inputs.scenario) if comparable(p)]
    for step, best in enumerate(found.steps["oracle"]):
        assert best.worth <= min(found.steps[name][step].worth for name in fair)


@pytest.mark.parametrize("policy", [p for p in POLICIES if comparable(p)], ids=lambda p: p.name)
def test_nobody_beats_the_bound(policy: object) -> None:
    case = small.case(tail=None, spot=None)
    for found, drawn in zip(play(case, policy), case.order, strict=True):  # type: ignore[arg-type]
        low = bound(case.site, drawn)
        assert found.decode_seconds >= low.seconds * (1 - 1e-9)
        assert found.decoding >= low.gpu_seconds * (1 - 1e-9)
