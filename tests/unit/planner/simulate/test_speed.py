from __future__ import annotations

import numpy as np
import pytest

from ebbtide.errors import Refused
from services.planner.simulate.calibration import FITTED_TP, LEFT_OUT_TP, computed_profile, left_out
from services.planner.simulate.tables import LINEAR


def test_rows_that_the_fit_did_not_see_are_met_within_10_percent() -> None:
    found = left_out()
    assert len(found) > 30
    assert max(abs(one.error) for one in found) < 0.10


def test_what_is_left_out_is_not_fitted() -> None:
    assert LEFT_OUT_TP not in FITTED_TP
    assert any(key[2] == LEFT_OUT_TP for key in LINEAR)


def test_more_gpus_are_faster_but_not_in_proportion() -> None:
    one, four = (computed_profile("qwen2.5-7b", "h100", tensor_parallel=t) for t in (1, 4))
    ratio = float(one.tpot(1, 1000) / four.tpot(1, 1000))
    assert 1.0 < ratio < 4.0


def test_a_batch_costs_more_than_one_and_less_than_in_proportion() -> None:
    one, many = computed_profile("qwen2.5-3b", "l40s").tpot(
        np.array([1, 64]), np.array([300, 19200])
    )
    assert one < many < 64 * one


@pytest.mark.parametrize(
    ("model", "gpu", "words"),
    [
        ("gpt-9", "h100", "unknown model"),
        ("qwen2.5-3b", "tpu", "unknown GPU"),
        ("llama-2-70b", "l40s", "does not fit"),
    ],
)
def test_what_cannot_be_computed_is_refused(model: str, gpu: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        computed_profile(model, gpu)
