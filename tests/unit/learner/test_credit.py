"""Advantages that need log-probabilities or the whole batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from services.learner.core.control import KlControl
from services.learner.core.samples import MicroBatch, pad
from services.learner.engine.credit import assign, to_go
from services.learner.engine.gang import Gang
from services.learner.engine.updates import on_device
from tests.unit.learner.gangs import algorithm_of, samples


def a_batch(gang: Gang, values: list[float], *, real: bool = True) -> Any:
    rows = [
        replace(sample, advantage=value, group=i // 2)
        for i, (sample, value) in enumerate(zip(samples(len(values)), values, strict=True))
    ]
    batch: MicroBatch = replace(pad(rows), real=real)
    return on_device(batch, gang.device)


def credit(gang: Gang, batches: list, gaps: list | None, **options: Any) -> Any:
    algorithm = algorithm_of(**options)
    return assign(batches, gaps, coefficient=0.5, algorithm=algorithm, gang=gang)


def test_most_algorithms_take_advantages_as_they_are(gang: Gang) -> None:
    batch = a_batch(gang, [1.0, -1.0])
    assert credit(gang, [batch], None).advantages[0] is batch.advantages


def test_advantages_are_whitened_over_all_tokens_of_the_batch(gang: Gang) -> None:
    parts = [a_batch(gang, [1.0, 0.0, 0.0]), a_batch(gang, [1.0, 1.0, 0.0, 0.0])]
    dummy = a_batch(gang, [99.0], real=False)
    found = credit(gang, [*parts, dummy], None, type="reinforce-plus-plus").advantages
    whole = torch.cat(found[:2]).double()
    assert float(whole.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(whole.std(unbiased=False)) == pytest.approx(1.0, abs=1e-6)


def test_equal_rewards_whiten_to_nothing(gang: Gang) -> None:
    batch = a_batch(gang, [0.7, 0.7, 0.7])
    [found] = credit(gang, [batch], None, type="reinforce-plus-plus").advantages
    assert float(found.abs().max()) < 1e-3


@pytest.mark.parametrize(("kind", "factor"), [("grpo", 1.0), ("rloo", 2.0)])
def test_kl_in_the_reward_is_charged_less_its_groups_mean(
    gang: Gang, kind: str, factor: float
) -> None:
    batch = a_batch(gang, [0.0, 0.0])
    gap = torch.linspace(-1, 1, len(batch.targets))
    kl = {"place": "reward", "estimator": "k1"}
    result = credit(gang, [batch], [gap], type=kind, kl=kl, kl_coefficient=0.5)
    first, second = ((-part).sum() for part in gap.split(batch.counts.tolist()))
    expected = -0.5 * factor * (first - (first + second) / 2)
    assert float(result.advantages[0][0]) == pytest.approx(float(expected), abs=1e-5)
    assert result.kl == pytest.approx(float((-gap).mean()), abs=1e-6)


def test_a_token_bears_the_kl_that_is_still_to_come() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 8.0])
    assert to_go(values, torch.tensor([3, 1])).tolist() == [7.0, 6.0, 4.0, 8.0]


def test_reinforce_plus_plus_charges_each_token_what_comes_after_it(gang: Gang) -> None:
    batch = a_batch(gang, [1.0, 1.0])
    gap = -torch.ones(len(batch.targets))
    result = credit(gang, [batch], [gap], type="reinforce-plus-plus", kl_coefficient=0.5)
    first = result.advantages[0][: int(batch.counts[0])]
    assert np.all(np.diff(first.numpy()) > 0), "later tokens bear less"


def test_the_coefficient_follows_its_target() -> None:
    control = KlControl(0.1, target=0.02, rate=0.1)
    assert control.after(0.2).coefficient == pytest.approx(0.1 * 1.02)
    assert control.after(0.0).coefficient == pytest.approx(0.1 * 0.98)
    assert control.after(0.022).coefficient == pytest.approx(0.1 * 1.01)
    assert control.after(float("nan")) == control
    assert KlControl(0.1, None, 0.1).after(9.0).coefficient == 0.1
