from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.planning.demand import Demand, bucket_edges, from_forecast, from_lengths
from services.planner.core.planning.rollout_time import Curve, replayed_seconds, rollout_time
from tests.unit.planner.planning.samples import lengths_like_gsm8k, profile, realised


def _alone(
    demand: Demand,
    *,
    slots: int = 256,
    prompt: float = 0.0,
    kv: int = 10**7,
    reserved: float | None = None,
) -> Curve:
    time = rollout_time(
        profile(kv_tokens=kv), demand, slots=slots, prompt_tokens=prompt, reserved=reserved
    )
    return time.shares(demand, demand.shares(np.asarray([0, demand.items])))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(0, 500))
def test_known_lengths_take_the_iteration_sum_exactly(lengths: list[int], prompt: int) -> None:
    predicted = _alone(from_lengths(lengths), prompt=prompt)
    exact = replayed_seconds(profile(), lengths, slots=256, prompt_tokens=prompt)
    assert float(predicted.seconds()[0]) == pytest.approx(exact, rel=1e-6)
    assert predicted.makespan() == pytest.approx(exact, rel=1e-6)


def test_the_formula_by_hand() -> None:
    flat = profile(batches=(1, 2, 3), contexts=(0,), seconds=((0.01,), (0.015,), (0.03,)))
    demand = from_lengths([100, 60, 10])
    time = rollout_time(flat, demand, slots=8)
    seconds = time.shares(demand, demand.shares(np.asarray([0, 3]))).seconds()
    assert seconds[0] == pytest.approx(0.03 * 10 + 0.015 * 50 + 0.01 * 40)


@pytest.mark.parametrize("slots", [2, 8, 32])
def test_waves_are_close_to_the_replay(slots: int) -> None:
    lengths = realised(lengths_like_gsm8k(200), np.random.default_rng(1)).astype(int).tolist()
    exact = replayed_seconds(profile(), lengths, slots=slots, prompt_tokens=100)
    predicted = _alone(from_lengths(lengths), slots=slots, prompt=100)
    assert float(predicted.seconds()[0]) == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("slots", [3, 16, 200])
def test_where_time_is_work_waves_change_nothing(slots: int) -> None:
    steep = profile(batches=(1, 512), contexts=(0,), seconds=((1e-3,), (0.512,)))
    lengths = realised(lengths_like_gsm8k(60), np.random.default_rng(1))
    demand = from_lengths(lengths)
    time = rollout_time(steep, demand, slots=slots)
    seconds = time.shares(demand, demand.shares(np.asarray([0, 60]))).seconds()
    assert seconds[0] == pytest.approx(lengths.sum() * 1e-3, rel=1e-3)


def test_kv_capacity_admits_in_waves() -> None:
    lengths = [1000] * 40
    exact = replayed_seconds(profile(kv_tokens=11_000), lengths, slots=64, prompt_tokens=100)
    bounded = _alone(from_lengths(lengths), prompt=100, kv=11_000, reserved=1100)
    assert float(bounded.seconds()[0]) == pytest.approx(exact, rel=1e-6)


def test_kv_that_grows_with_the_samples_holds_more_of_them() -> None:
    demand = from_lengths([1000] * 40)
    grows = _alone(demand, prompt=100, kv=11_000).seconds()[0]
    reserved = _alone(demand, prompt=100, kv=11_000, reserved=1100).seconds()[0]
    assert _alone(demand, prompt=100).seconds()[0] < grows < reserved


def test_an_answer_larger_than_the_kv_still_runs_alone() -> None:
    assert np.isfinite(_alone(from_lengths([5000, 5000]), kv=1000).seconds()).all()


@pytest.mark.parametrize("actors", [1, 4, 12])
def test_predicted_step_times_are_unbiased(actors: int) -> None:
    demand = from_forecast(lengths_like_gsm8k(384), limit=2048)
    cuts = np.arange(actors + 1) * 384 // actors
    time = rollout_time(profile(), demand, slots=384, prompt_tokens=100)
    predicted = time.shares(demand, demand.shares(cuts))
    steps = np.asarray([_realised_step(demand, cuts, seed) for seed in range(100)])
    assert predicted.makespan() == pytest.approx(steps.max(axis=1).mean(), rel=0.03)
    assert predicted.seconds().sum() == pytest.approx(steps.sum(axis=1).mean(), rel=0.015)


def test_a_plan_on_medians_underestimates_the_step() -> None:
    forecast, cuts = lengths_like_gsm8k(384), np.arange(5) * 96
    medians = from_lengths(forecast.at(0.5))
    time = rollout_time(profile(), medians, slots=384, prompt_tokens=100)
    steps = [_realised_step(medians, cuts, seed).max() for seed in range(20)]
    assert time.shares(medians, medians.shares(cuts)).makespan() < 0.95 * np.mean(steps)


def _realised_step(
    demand: Demand, cuts: npt.NDArray[np.intp], seed: int
) -> npt.NDArray[np.float64]:
    """Seconds of each actor for lengths that came of the forecast: tau(j) (L_j - L_(j+1))."""
    drawn = realised(lengths_like_gsm8k(384), np.random.default_rng(seed))[demand.order]
    return np.asarray([_iteration_sum(drawn[a:b]) for a, b in pairwise(cuts)])


def _iteration_sum(lengths: npt.NDArray[np.float64]) -> float:
    ends = np.sort(lengths)
    begins = np.append(0.0, ends[:-1])
    batch = np.arange(len(ends), 0, -1)
    context = batch * (100 + (begins + ends) / 2)
    return float(profile().tpot(batch, context) @ (ends - begins))


def test_no_split_of_the_samples_beats_the_longest_answer_alone() -> None:
    demand = from_forecast(lengths_like_gsm8k(64), limit=2048)
    time = rollout_time(profile(), demand, slots=64, per_actor=0.5)
    alone = time.shares(demand, demand.shares(np.arange(65))).makespan()
    floor, loose = time.not_before(demand, np.asarray([0.0, 100.0]))
    assert floor == pytest.approx(alone, rel=0.02)
    assert loose == pytest.approx(100.0)


def test_no_answer_is_expected_beyond_the_limit() -> None:
    demand = from_forecast(lengths_like_gsm8k(5000, within=1.5), limit=2048)
    assert demand.bounds[-1] == pytest.approx(2048)


def test_hand_over_and_catch_up_are_charged() -> None:
    demand = from_lengths([10, 10])
    time = rollout_time(profile(), demand, slots=8, per_sample=0.5, per_actor=3.0)
    plain = rollout_time(profile(), demand, slots=8)
    shares = demand.shares(np.asarray([0, 2]))
    more = time.shares(demand, shares).seconds() - plain.shares(demand, shares).seconds()
    assert more[0] == pytest.approx(4.0)


def test_the_slowest_of_many_is_slower_than_each() -> None:
    demand = from_forecast(lengths_like_gsm8k(64), limit=2048)
    time = rollout_time(profile(), demand, slots=64)
    curve = time.shares(demand, demand.shares(np.asarray([0, 32, 64])) * 0 + demand.counts / 2)
    assert curve.makespan() > curve.seconds().max()


@given(st.integers(1, 100_000), st.integers(1, 256))
def test_buckets_cover_every_rank_once(items: int, buckets: int) -> None:
    edges = bucket_edges(items, buckets)
    assert edges[0] == 0
    assert edges[-1] == items
    assert len(edges) - 1 == min(items, buckets)
    assert (np.diff(edges) > 0).all()


def test_lengths_of_nothing_are_refused() -> None:
    for wrong in ([0, 5], [-1], [float("nan")], [float("inf")]):
        with pytest.raises(Refused):
            from_lengths(wrong)


def test_nothing_to_decode_takes_no_time() -> None:
    demand = from_lengths([])
    assert demand.items == 0
    assert demand.tokens == 0
