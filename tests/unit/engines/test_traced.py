"""Steps that are replayed from a recording are the model's own, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ebbtide.engines.publication import read_publication
from ebbtide.engines.torch.kv import KvRows
from ebbtide.engines.torch.runner import Runner, load_weights
from ebbtide.engines.torch.sampling import Drawn, Noise
from ebbtide.engines.torch.traced import traced_step
from ebbtide.testing.tiny_models import Tiny, publish_tiny
from tests.unit.engines import rigs

ROWS, WIDTH = 32, 96


@pytest.fixture
def runner(tiny: Tiny) -> Runner:
    return rigs.runner(tiny)


def steps(runner: Runner, rows: int, *, heat: float = 1.0) -> list[Drawn]:
    """What is drawn while `rows` random texts are decoded side by side, past several windows."""
    rng, kv = np.random.default_rng(0), KvRows(ROWS, WIDTH)
    kv.prepare(runner.geometry())
    words = torch.arange(rows) * 7919
    found = []
    with torch.inference_mode():
        for at in range(70):
            tokens, positions = rng.integers(0, runner.vocab, size=rows), np.full(rows, at)
            noise = Noise(words, torch.full((rows,), at), torch.full((rows,), heat))
            found.append(runner.step(kv, tokens, positions, -(-(at + 1) // 16) * 16, noise))
    return found


def same(some: list[Drawn], others: list[Drawn]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("heat", [0.0, 0.7])
@pytest.mark.parametrize("rows", [1, 3, ROWS])
def test_a_recorded_step_has_the_bits_of_the_model(runner: Runner, rows: int, heat: float) -> None:
    expected = steps(runner, rows, heat=heat)
    runner.trace()
    assert runner.traced
    assert same(steps(runner, rows, heat=heat), expected)


def test_a_recording_reads_the_weights_of_the_next_policy(runner: Runner, tmp_path: Path) -> None:
    runner.trace()
    before = steps(runner, 2)
    index, tensors = read_publication(publish_tiny(tmp_path, seed=5, n=1).path)
    load_weights(runner.model, tensors, dict(index.aliases))
    after = steps(runner, 2)
    fresh = Runner(runner.model)
    assert not same(before, after)
    assert same(after, steps(fresh, 2))


class Moody(nn.Module):
    """Adds `more` to what passes, if the first number is positive."""

    def __init__(self, more: float) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = self.more if x.flatten()[0] > 0 else 0.0
        return x + shift


def test_a_model_that_looks_at_values_is_not_recorded(runner: Runner) -> None:
    runner.model.model.layers[0].mlp = Moody(1.0)
    runner.trace()
    assert not runner.traced
    assert len(steps(runner, 2)) == 70


class Tired(nn.Module):
    """Adds how often it was called, which a recording takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def test_a_recording_with_other_bits_is_not_used(runner: Runner) -> None:
    runner.model.model.layers[0].mlp = Tired()
    runner.trace()
    assert not runner.traced


def test_weights_that_are_not_finite_prove_nothing(runner: Runner) -> None:
    with torch.no_grad():
        runner.model.model.norm.weight.fill_(float("nan"))
    kv = KvRows(1, 1)
    kv.prepare(runner.geometry())
    with torch.inference_mode():
        assert traced_step(runner.model, kv) is None
