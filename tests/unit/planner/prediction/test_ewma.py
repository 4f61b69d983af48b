from __future__ import annotations

import numpy as np

from services.planner.core.prediction.ewma import Ewma
from services.planner.core.prediction.predictor import Observation, Queries


def _tell(ewma: Ewma, step: int, prompt: str, *lengths: int) -> None:
    for length in lengths:
        ewma.observe(Observation(prompt, 10, "", step, 0, length))
    ewma.end_step(step)


def _ask(ewma: Ewma, step: int, *ids: str) -> list[float]:
    rows = np.arange(len(ids))
    tokens = np.full(len(ids), 10, dtype=np.int32)
    asked = Queries(step, ids, [""] * len(ids), tokens, rows.astype(np.int32), rows)
    return [float(value) for value in ewma.forecast(asked).at(0.5)]


def test_a_window_of_one_epoch_repeats_the_last() -> None:
    ewma = Ewma(limit=1000)
    _tell(ewma, 0, "a", 100, 200)
    _tell(ewma, 1, "a", 300, 500)
    np.testing.assert_allclose(_ask(ewma, 2, "a"), [400])


def test_a_window_of_three_epochs_weighs_the_last_by_half() -> None:
    ewma = Ewma(limit=1000, window=3)
    _tell(ewma, 0, "a", 100)
    _tell(ewma, 1, "a", 300)
    _tell(ewma, 2, "a", 500)
    np.testing.assert_allclose(_ask(ewma, 3, "a"), [350], rtol=1e-5)


def test_a_new_prompt_gets_the_mean_of_all_answers() -> None:
    ewma = Ewma(limit=1000)
    np.testing.assert_allclose(_ask(ewma, 0, "a"), [500])
    _tell(ewma, 0, "a", 100, 200)
    np.testing.assert_allclose(_ask(ewma, 1, "b"), [150], rtol=1e-5)


def test_it_is_a_point_and_blind_to_its_step() -> None:
    ewma = Ewma(limit=1000)
    _tell(ewma, 0, "a", 100)
    ewma.observe(Observation("a", 10, "", 1, 0, 900))
    assert _ask(ewma, 1, "a") == _ask(ewma, 1, "a", "b")[:1]
    np.testing.assert_allclose(_ask(ewma, 1, "a"), [100], rtol=1e-5)
