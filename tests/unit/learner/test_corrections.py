"""Engine against learner: weights, rejection, the alarm."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ebbtide.spec import MismatchSpec
from services.learner.core.metrics import alarm
from services.learner.engine.corrections import correct

COUNTS = torch.tensor([2, 3])
LEARNER = torch.log(torch.tensor([0.8, 0.8, 0.1, 0.4, 0.4]))
ENGINE = torch.log(torch.tensor([0.4, 0.2, 0.4, 0.4, 0.4]))
"""Ratios 2, 4 | 1/4, 1, 1: of the answers 8 and 1/4, per token 2.83 and 0.63."""


def weights(**options: Any) -> list[float]:
    found = correct(LEARNER, ENGINE, COUNTS, MismatchSpec(**options)).weight
    assert found is not None
    return [round(w, 3) for w in found.tolist()]


def test_without_an_order_nothing_is_weighed() -> None:
    assert correct(LEARNER, ENGINE, COUNTS, MismatchSpec()).weight is None


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [2.0, 3.0, 0.25, 1.0, 1.0]),
        ("sequence", [3.0, 3.0, 0.25, 0.25, 0.25]),
        ("geometric", [2.828, 2.828, 0.63, 0.63, 0.63]),
    ],
)
def test_weights_are_ratios_cut_off_above(level: str, expected: list[float]) -> None:
    assert weights(weight=level, weight_max=3.0) == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [1.0, 0.0, 0.0, 1.0, 1.0]),
        ("sequence", [0.0] * 5),
        ("geometric", [0.0, 0.0, 1.0, 1.0, 1.0]),
    ],
)
def test_what_lies_outside_the_bounds_is_rejected(level: str, expected: list[float]) -> None:
    bounds = {"reject_low": 0.5, "reject_high": 2.001}
    assert weights(reject=level, **bounds) == expected


def test_weights_and_rejection_have_levels_of_their_own() -> None:
    found = weights(weight="token", weight_max=3.0, reject="geometric", reject_high=2.5)
    assert found == [0.0, 0.0, 0.25, 1.0, 1.0]


def test_an_absurd_ratio_stays_finite() -> None:
    found = correct(
        torch.zeros(1), torch.tensor([-1e4]), torch.ones(1).long(), MismatchSpec(reject="token")
    )
    assert found.weight is not None
    assert found.weight.tolist() == [0.0]


@pytest.mark.parametrize(
    ("kl", "ess", "expected"),
    [(0.01, 0.95, False), (0.06, 0.95, True), (0.01, 0.7, True), (float("nan"), 0.9, True)],
)
def test_the_alarm_is_raised_by_kl_or_by_the_share_of_samples(
    kl: float, ess: float, expected: bool
) -> None:
    assert alarm({"mismatch_kl": kl, "mismatch_ess": ess}, MismatchSpec()) is expected
