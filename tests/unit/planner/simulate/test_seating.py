from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from services.planner.core.prediction.forecast import log_normal
from services.planner.simulate.policies import POLICIES, RLHFLESS, SPOTTED, STATIC
from services.planner.simulate.seating import Seating, longest_fifth
from services.planner.simulate.site import OTHER
from tests.unit.planner.simulate import small

WORK = {**small.DOCUMENT["work"], "prompts": 32, "promptsPerStep": 32}


def forecast_of(batch: object) -> object:
    lengths = batch.lengths.astype(float)  # type: ignore[attr-defined]
    return log_normal(np.log(lengths), np.full(len(lengths), 0.01), 2048)


def test_rlhfless_cuts_sorted_samples_into_equal_counts() -> None:
    case = small.case(work=WORK)
    batch = case.order.batch(0)
    found = Seating(case.site, RLHFLESS).lay_out(batch, forecast_of(batch))  # type: ignore[arg-type]
    counts = np.bincount(found.actor_of)
    assert counts.max() - counts.min() <= 1
    means = [batch.lengths[found.actor_of == a].mean() for a in range(len(counts))]
    assert means == sorted(means, reverse=True)


def test_streamrl_has_the_longest_fifth_apart() -> None:
    case = small.case(work=WORK)
    batch = case.order.batch(0)
    actor_of = longest_fifth(forecast_of(batch), batch, 4)  # type: ignore[arg-type]
    longest = set(np.argsort(-batch.lengths, kind="stable")[: len(batch) // 5].tolist())
    apart = set(actor_of[sorted(longest)].tolist())
    assert apart.isdisjoint(actor_of[[n for n in range(len(batch)) if n not in longest]].tolist())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rule", ["top-k", "lpt", "equal-count"])
def test_forecasts_of_points_are_seated_by_every_rule(rule: Any, seed: int) -> None:
    case = small.case(seed, work={**WORK, "prompts": 256, "promptsPerStep": 256})
    batch = case.order.batch(0)
    lengths = case.trace.lengths[1, batch.prompts].mean(axis=1)
    lengths[batch.group % 8 != seed] = 300  # prompts never seen before have all the same
    points = log_normal(np.log(lengths), np.zeros(len(batch)), 2048)
    found = Seating(case.site, replace(STATIC, rule=rule)).lay_out(batch, points)
    assert set(found.actor_of.tolist()) == set(range(len(found.seats)))


def test_without_a_forecast_groups_are_dealt_out_whole() -> None:
    case = small.case(work=WORK)
    batch = case.order.batch(0)
    found = Seating(case.site, STATIC).lay_out(batch, None)
    assert len(found.seats) == 4
    assert all(len(set(found.actor_of[batch.group == g])) == 1 for g in range(batch.groups))


def test_where_no_spot_actor_can_be_had_all_is_on_demand() -> None:
    case = small.case(work=WORK, tail=None)
    batch = case.order.batch(0)
    found = Seating(case.site, SPOTTED).lay_out(batch, forecast_of(batch), 0)  # type: ignore[arg-type]
    assert {seat.kind for seat in found.seats} == {OTHER}


def test_every_policy_has_a_name_of_its_own() -> None:
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)
