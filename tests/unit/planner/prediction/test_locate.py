from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.prediction.locate import Ended, Normal, Running, beyond, locate

logs = st.floats(0, 12)
NOBODY = Running(np.zeros(0, dtype=np.intp), np.zeros(0))


def _ended(*exact: float, cut: tuple[float, ...] = ()) -> Ended:
    sums = (len(exact), sum(exact), len(cut), sum(cut))
    return Ended(*(np.array([float(value)]) for value in sums))


def _prior(mean: float, variance: float = 1.0) -> Normal:
    return Normal(np.array([mean]), np.array([variance]))


def test_ended_answers_alone_give_the_normal_posterior() -> None:
    found = locate(_prior(5.0), _ended(6.0, 7.0), NOBODY, within=0.5)
    np.testing.assert_allclose(found.mean, (5.0 + 13.0 / 0.5) / (1 + 2 / 0.5))
    np.testing.assert_allclose(found.variance, 1 / (1 + 2 / 0.5))


@given(logs, st.lists(logs, max_size=4), st.lists(logs, min_size=1, max_size=32))
def test_the_mode_is_the_top_of_the_posterior(
    prior: float, exact: list[float], cut: list[float]
) -> None:
    ended, within = _ended(*exact, cut=(cut[0],) * len(cut)), 0.3
    found = locate(_prior(prior), ended, NOBODY, within)
    grid = np.linspace(-5, 20, 5001)
    scale = np.sqrt(3 * within) / np.pi
    score = -((grid - prior) ** 2) / 2 - sum((grid - y) ** 2 for y in exact) / (2 * within)
    score = score - len(cut) * np.logaddexp(0, (cut[0] - grid) / scale)
    assert abs(found.mean[0] - grid[np.argmax(score)]) < 0.25


@given(logs, st.lists(logs, min_size=1, max_size=8))
def test_what_runs_on_can_only_move_a_group_up(prior: float, running: list[float]) -> None:
    samples = Running(np.zeros(len(running), dtype=np.intp), np.array(running))
    before = locate(_prior(prior), _ended(), NOBODY, 0.3)
    assert locate(_prior(prior), _ended(), samples, 0.3).mean[0] >= before.mean[0]


@given(logs, logs)
def test_what_lies_beyond_a_bound_is_above_it_and_above_the_mean(bound: float, mean: float) -> None:
    value = beyond(np.array([bound]), np.array([mean]), 0.3)[0]
    assert value >= bound
    assert value >= mean - 1e-6
