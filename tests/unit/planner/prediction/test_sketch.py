from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.prediction.sketch import Sketch, moments, quantiles

values = st.lists(st.tuples(st.floats(-1, 9), st.booleans()), min_size=1, max_size=40)
LEVELS = np.array([0.1, 0.5, 0.9])


def _sketch(exact: np.ndarray, cut: np.ndarray | None = None) -> Sketch:
    sketch = Sketch(1, low=0.0, high=8.0, bins=400)
    everything = exact if cut is None else np.concatenate([exact, cut])
    rows = np.zeros(len(everything), dtype=np.intp)
    sketch.add(rows, everything, np.arange(len(everything)) >= len(exact))
    return sketch


def test_quantiles_are_those_of_the_values() -> None:
    values = np.random.default_rng(0).normal(4, 0.7, 20_000)
    sketch = _sketch(values)
    found = quantiles(sketch.weights, sketch.edges, LEVELS)[0]
    np.testing.assert_allclose(found, np.quantile(values, LEVELS), atol=0.03)
    mean, variance = moments(sketch.weights, sketch.edges)
    np.testing.assert_allclose([mean[0], variance[0]], [4, 0.49], atol=0.02)


def test_answers_cut_at_random_leave_the_quantiles_in_place() -> None:
    random = np.random.default_rng(1)
    values, bounds = random.normal(4, 0.7, 20_000), random.normal(4.5, 1, 20_000)
    cut = bounds < values
    sketch = _sketch(values[~cut], bounds[cut])
    found = quantiles(sketch.weights, sketch.edges, LEVELS)[0]
    np.testing.assert_allclose(found, np.quantile(values, LEVELS), atol=0.1)


def test_answers_cut_beyond_all_others_stand_in_the_last_bin() -> None:
    sketch = _sketch(np.full(3, 2.0), np.full(2, 5.0))
    assert sketch.weights[0, -1] == 2


@given(values)
def test_every_answer_weighs_one(drawn: list[tuple[float, bool]]) -> None:
    sketch = Sketch(2, low=0.0, high=8.0, bins=16)
    rows = np.arange(len(drawn)) % 2
    sketch.add(rows, np.array([v for v, _ in drawn]), np.array([c for _, c in drawn]))
    np.testing.assert_allclose(sketch.weights.sum(), len(drawn))
    assert sketch.weights.min() >= 0


def test_decay_halves_what_was() -> None:
    sketch = _sketch(np.full(4, 2.0))
    sketch.decay(0.5)
    assert sketch.weights.sum() == 2
