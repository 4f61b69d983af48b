from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.prediction.forecast import LEVELS, Forecast, clipped, log_normal

LIMIT = 2048.0

rows = st.lists(
    st.lists(st.floats(1, LIMIT), min_size=len(LEVELS), max_size=len(LEVELS)).map(sorted),
    min_size=1,
    max_size=8,
)


def _forecast(values: list[list[float]]) -> Forecast:
    return clipped(np.array(values), LIMIT)


def test_each_level_reads_its_own_column() -> None:
    forecast = _forecast([[10, 20, 30, 40, 50, 60], [7, 7, 8, 9, 9, 400]])
    for column, level in enumerate(LEVELS):
        np.testing.assert_allclose(forecast.at(level), forecast.quantiles[:, column], rtol=1e-5)


def test_the_mean_of_a_log_normal_is_met() -> None:
    mu, sigma = np.array([4.0, 5.0, 6.0]), np.array([0.2, 0.5, 0.8])
    mean = log_normal(mu, sigma, 1e9).mean()
    np.testing.assert_allclose(mean, np.exp(mu + sigma**2 / 2), rtol=0.02)


def test_the_rest_of_a_log_normal_is_that_of_its_longer_draws() -> None:
    draws = np.exp(5.0 + 0.6 * np.random.default_rng(3).standard_normal(400_000))
    forecast = log_normal(np.array([5.0]), np.array([0.6]), 1e9)
    for done, near in ((60, 0.1), (150, 0.1), (300, 0.15), (500, 0.35)):  # a heavier tail at last
        rest = forecast.residual(np.array([done], dtype=np.int32))
        true = draws[draws > done] - done
        np.testing.assert_allclose(rest.mean()[0], true.mean(), rtol=near)
        np.testing.assert_allclose(rest.at(0.5)[0], np.median(true), rtol=near)


def test_nothing_written_changes_nothing() -> None:
    forecast = _forecast([[10, 20, 30, 40, 50, 60]])
    rest = forecast.residual(np.array([0], dtype=np.int32))
    np.testing.assert_array_equal(rest.quantiles, forecast.quantiles)


def test_past_every_quantile_more_written_means_more_to_come() -> None:
    forecast = log_normal(np.full(3, 4.0), np.full(3, 0.5), LIMIT)
    rest = forecast.residual(np.array([400, 800, 1600], dtype=np.int32)).mean()
    assert rest[0] < rest[1] < rest[2]


def test_a_rest_ends_at_the_limit() -> None:
    forecast = log_normal(np.full(2, 6.0), np.full(2, 1.0), LIMIT)
    rest = forecast.residual(np.array([2000, 2048], dtype=np.int32), limit=2048)
    assert rest.quantiles.max() <= 48
    np.testing.assert_array_equal(rest.quantiles[1], np.ones(len(LEVELS)))


@given(rows, st.integers(0, 5000))
def test_a_rest_is_a_forecast_again(values: list[list[float]], done: int) -> None:
    forecast = _forecast(values)
    rest = forecast.residual(np.full(len(values), done, dtype=np.int32), limit=2048)
    assert np.all(np.isfinite(rest.quantiles))
    assert rest.quantiles.max() <= max(LIMIT - done, 1)


@given(rows, st.integers(0, 3000), st.integers(0, 3000))
def test_the_end_moves_out_as_an_answer_grows(values: list[list[float]], a: int, b: int) -> None:
    early, late = (np.full(len(values), t, dtype=np.int32) for t in sorted((a, b)))
    ends_early = _forecast(values).residual(early).quantiles + early[:, None]
    ends_late = _forecast(values).residual(late).quantiles + late[:, None]
    assert np.all(ends_late >= ends_early * 0.999 - 1)


@given(rows)
def test_the_mean_lies_between_one_and_the_longest(values: list[list[float]]) -> None:
    mean = _forecast(values).mean()
    assert np.all(mean >= 1)
    assert np.all(mean <= LIMIT * 1.001)


def test_rows_are_taken_in_the_order_asked() -> None:
    forecast = _forecast([[1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7], [3, 4, 5, 6, 7, 8]])
    assert forecast.take(np.array([2, 0])).quantiles[:, 0].tolist() == [3.0, 1.0]
    assert len(forecast.take(np.array([False, True, False]))) == 1
