from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.prediction.calibration import calibrate, spearman, tail_recall
from services.planner.core.prediction.forecast import log_normal


def test_a_true_forecast_covers_what_it_says() -> None:
    random = np.random.default_rng(0)
    mu = random.normal(6, 1, 20_000)
    lengths = np.exp(mu + 0.5 * random.standard_normal(20_000)).astype(np.int32)
    found = calibrate(log_normal(mu, np.full(20_000, 0.5), 1e9), lengths, lengths < 0)
    assert abs(found.coverage_p50 - 0.5) < 0.02
    assert abs(found.coverage_p90 - 0.9) < 0.02
    assert found.rank > 0.8
    assert found.tail_recall > 0.6


def test_quantiles_at_the_limit_are_left_out_of_coverage() -> None:
    random = np.random.default_rng(0)
    mu, sigma = random.normal(6, 1, 20_000), np.full(20_000, 0.5)
    uncut = np.exp(mu + sigma * random.standard_normal(20_000))
    found = calibrate(
        log_normal(mu, sigma, 1000),
        np.minimum(uncut, 1000).astype(np.int32),
        uncut > 1000,
        limit=1000,
    )
    assert abs(found.coverage_p90 - 0.9) < 0.02
    assert found.censored > 2000


def test_errors_are_in_tokens_of_the_median() -> None:
    forecast = log_normal(np.log([100.0, 100.0]), np.full(2, 0.1), 1e9)
    found = calibrate(forecast, np.array([90, 130], dtype=np.int32), np.zeros(2, dtype=bool))
    assert math.isclose(found.mae, 20, rel_tol=1e-4)


def test_nothing_to_measure_is_no_number() -> None:
    none = log_normal(np.zeros(0), np.zeros(0), 10)
    found = calibrate(none, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=bool))
    assert found.samples == 0
    assert all(math.isnan(v) for v in (found.mae, found.rank, found.coverage_p90))


@given(st.lists(st.integers(0, 20), min_size=2, max_size=30))
def test_rank_correlation_sees_order_alone(values: list[int]) -> None:
    a = np.array(values, dtype=np.float64)
    rank = spearman(a, np.exp(a / 5))
    assert math.isnan(rank) if a.min() == a.max() else math.isclose(rank, 1, rel_tol=1e-9)


def test_rank_correlation_of_a_known_case() -> None:
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])
    assert math.isclose(spearman(a, b), 0.8)


def test_a_flat_forecast_finds_as_much_of_the_tail_as_chance() -> None:
    lengths = np.arange(100, dtype=np.float64)
    assert math.isclose(tail_recall(np.ones(100), lengths), 0.1)
    assert tail_recall(lengths, lengths) == 1
    assert tail_recall(-lengths, lengths) == 0
