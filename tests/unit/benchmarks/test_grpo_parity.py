from __future__ import annotations

import numpy as np
import pytest

from benchmarks.grpo_parity.compare import differences

THEIRS = {"loss": np.array(2.0), "a": np.array([3.0, 4.0]), "b": np.array([1e-9])}


def test_a_difference_in_one_tensor_counts_by_itself() -> None:
    theirs = {**THEIRS, "b": np.array([0.1])}
    ours = {**theirs, "b": np.array([0.2])}
    assert differences(ours, theirs) == pytest.approx((0.0, 1.0))


def test_rounding_of_a_gradient_that_is_zero_does_not_count() -> None:
    ours = {**THEIRS, "b": np.array([-1e-9]), "loss": np.array(2.02)}
    loss, gradient = differences(ours, THEIRS)
    assert loss == pytest.approx(0.01)
    assert gradient < 1e-8
