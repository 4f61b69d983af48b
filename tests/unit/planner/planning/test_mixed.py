from __future__ import annotations

import numpy as np
import pytest

from ebbtide.errors import Refused
from services.planner.core.planning.laying import ActorModel
from services.planner.core.planning.mixed import Kind, Mixed, plan_two
from services.planner.core.prediction.forecast import log_normal
from services.planner.simulate.calibration import computed_profile

BASE, FAST = (computed_profile("qwen2.5-7b", "h100", tensor_parallel=t) for t in (1, 4))
GROUPS = np.repeat(np.arange(64), 4)
FORECAST = log_normal(
    np.log(1000) + np.repeat(np.random.default_rng(0).normal(0, 0.9, 64), 4),
    np.full(256, 0.5),
    16384,
)


def planned(*, quota: int = 16, most: int = 3, of_time: float = 8.0, dear: float = 4.0) -> Mixed:
    kinds = [Kind(BASE, 16, 1.0, 1), Kind(FAST, most, dear, 4)]
    actor = ActorModel(BASE, 256, 100.0)
    return plan_two(
        FORECAST, GROUPS, kinds=kinds, quota=quota, of_time=of_time, actor=actor, limit=16384
    )


def test_every_sample_has_an_actor_and_groups_stay_together() -> None:
    found = planned()
    assert set(np.unique(found.actor_of)) == set(range(len(found.kinds)))
    assert all(len(set(found.actor_of[g == GROUPS])) == 1 for g in range(64))


@pytest.mark.parametrize("quota", [4, 7, 16])
def test_the_quota_of_gpus_is_kept(quota: int) -> None:
    found = planned(quota=quota)
    assert sum(4 if kind else 1 for kind in found.kinds) <= quota


def test_the_longest_are_on_the_fast_type() -> None:
    found = planned(most=2, of_time=60.0, dear=8.0)
    fast = np.asarray(found.kinds)[found.actor_of] == 1
    assert fast.any()
    assert FORECAST.mean()[fast].min() >= FORECAST.mean()[~fast].max() * 0.9


def test_a_fast_type_that_is_too_dear_is_left_alone() -> None:
    assert set(planned(dear=1e6).kinds) == {0}


def test_time_that_is_worth_more_is_shorter() -> None:
    assert planned(of_time=100.0).seconds < planned(of_time=0.1).seconds


def test_a_quota_without_room_for_one_actor_is_refused() -> None:
    with pytest.raises(Refused, match="holds no actor"):
        planned(quota=0)
