from __future__ import annotations

import math

import pytest

from services.planner.simulate.statistics import (
    Point,
    cost_at,
    dominated,
    estimate,
    front,
    student,
)

POINTS = [Point(1.0, 10.0), Point(2.0, 4.0), Point(1.5, 12.0), Point(3.0, 3.0)]


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (19, 2.093), (100, 1.984)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=5e-3)


def test_a_mean_has_an_interval_from_two_values_on() -> None:
    assert math.isnan(estimate([3.0]).low)
    assert estimate([3.0]).words(1) == "3.0"
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.high - 2.0 == pytest.approx(2.484, rel=1e-3)


def test_a_front_has_nobody_that_another_beats() -> None:
    assert front(POINTS) == [POINTS[0], POINTS[1], POINTS[3]]
    assert dominated(POINTS[2], POINTS)
    assert not dominated(POINTS[0], POINTS)


def test_cost_at_a_time_lies_on_the_front_and_nobody_is_faster_than_the_fastest() -> None:
    assert cost_at(POINTS, 1.5) == pytest.approx(7.0)
    assert cost_at(POINTS, 9.0) == 3.0
    assert cost_at(POINTS, 0.5) == math.inf
