from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ppo_parity.compare import FIGURES, differences
from benchmarks.ppo_parity.rollouts import CASES, Case, check_active, make

THEIRS = {name: np.array([3.0, 4.0]) for name in FIGURES}


def test_each_figure_differs_by_itself() -> None:
    found = dict(zip(FIGURES, differences({**THEIRS, "targets": np.zeros(2)}, THEIRS), strict=True))
    assert found == {name: float(name == "targets") for name in FIGURES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_ratios_and_values_beyond_both_clips(case: Case) -> None:
    check_active(make(), case)


def test_rollouts_whose_policy_did_not_move_are_refused() -> None:
    data = make()
    with pytest.raises(AssertionError, match="no ratio"):
        check_active(
            {**data, "policy": np.zeros_like(data["policy"])} | {"old": _flat(data)}, CASES[0]
        )


def _flat(data: dict[str, np.ndarray]) -> np.ndarray:
    return np.full_like(data["old"], -np.log(len(data["policy"])))
