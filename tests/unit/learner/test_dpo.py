"""Preferences: the loss, its gradient in any layout and on any number of ranks, and a whole job."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from ebbtide.errors import Refused
from ebbtide.spec import DpoSpec
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Learned, PromptRow, pack_ints
from services.learner.core.samples import Sample, pad, pair_samples
from services.learner.engine.dpo import Dpo
from services.learner.engine.gang import Gang
from services.learner.engine.policy import load_policy
from tests.unit.learner.builders import a_dataset, a_rank, an_sft_step, job_spec
from tests.unit.learner.gangs import (
    VOCABULARY,
    Parts,
    close,
    lay,
    run_ranks,
    save_model,
)
from tests.unit.learner.test_rank import policy_of

BETA, SMOOTHING = 0.3, 0.2


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


def pairs(n: int = 5) -> list[Sample]:
    rng = np.random.default_rng(0)
    rows = [
        PromptRow(
            f"p{i}",
            pack_ints(rng.integers(0, VOCABULARY, 4)),
            "",
            b"",
            "t",
            "s",
            completion=pack_ints(rng.integers(0, VOCABULARY, 3 + i)),
            rejected=pack_ints(rng.integers(0, VOCABULARY, 9 - i)),
        )
        for i in range(n)
    ]
    return [sample for i, row in enumerate(rows) for sample in pair_samples(row, i)]


def engine(gang: Gang, folder: Path, other: Path) -> tuple[Dpo, Parts]:
    parts = Parts(gang, folder)
    dpo = Dpo(
        gang=gang,
        policy=parts.policy,
        reference=load_policy(other, gang, mixed_precision=False, frozen=True),
        optimiser=parts.optimiser,
        spec=DpoSpec(type="dpo", beta=BETA, label_smoothing=SMOOTHING),
    )
    return dpo, parts


def summed(policy: Any, sample: Sample) -> torch.Tensor:
    batch = pad([sample])
    arrays = (torch.from_numpy(a) for a in (batch.tokens, batch.where, batch.targets))
    total: torch.Tensor = policy.score(*arrays, temperature=1.0).logprobs.sum()
    return total


def written_out(dpo: Dpo) -> torch.Tensor:
    """The paper's loss, one pair after the other, by autograd."""
    losses = []
    found = pairs()
    for better, worse in zip(found[::2], found[1::2], strict=True):
        policy, reference = dpo._policy, dpo._reference
        chosen = summed(policy, better) - summed(reference, better).detach()
        h = BETA * (chosen - (summed(policy, worse) - summed(reference, worse).detach()))
        losses.append(-(1 - SMOOTHING) * logsigmoid(h) - SMOOTHING * logsigmoid(-h))
    return torch.stack(losses).mean()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("reference"), seed=1)


@pytest.mark.parametrize("limit", [20, 10_000])
def test_loss_and_gradient_are_the_papers_in_any_layout(
    gang: Gang, model: Path, other: Path, limit: int
) -> None:
    dpo, parts = engine(gang, model, other)
    wanted = written_out(dpo)
    wanted.backward()
    gradient = parts.gradients()
    parts.policy.module.zero_grad()
    figures = dpo.gradient(lay(pairs(), limit=limit))
    assert math.isclose(figures["loss"], float(wanted.detach()), rel_tol=1e-5)
    assert close(gradient, parts.gradients(), 1e-4)


def slopes(gang: Gang, model: str, other: str) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    dpo, parts = engine(gang, Path(model), Path(other))
    batches = lay(pairs(), rank=gang.rank, ranks=gang.size, limit=40)
    return dpo.gradient(batches), parts.gradients()


def test_two_ranks_find_the_gradient_of_one(
    gang: Gang, model: Path, other: Path, tmp_path: Path
) -> None:
    figures, gradients = slopes(gang, str(model), str(other))
    [_, (theirs, found)] = run_ranks(2, slopes, tmp_path, str(model), str(other))
    assert close(gradients, found)
    assert all(math.isclose(figures[n], theirs[n], abs_tol=1e-4) for n in figures)


def test_at_the_reference_nothing_is_preferred(gang: Gang, model: Path) -> None:
    dpo, _ = engine(gang, model, model)
    figures = dpo.gradient(lay(pairs()))
    assert math.isclose(figures["loss"], math.log(2), rel_tol=1e-5)
    assert figures["margin"] == pytest.approx(0.0, abs=1e-5)


async def test_a_job_comes_to_prefer_the_better_answers(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    algorithm = {"type": "dpo", "batch_size": 4, "updates_per_step": 3}
    learner = a_rank(gang, job_spec(model, algorithm=algorithm), blobs, tmp_path)
    await learner.start(None)
    dataset = await a_dataset(blobs)
    losses = []
    for step in range(6):
        command = await an_sft_step(blobs, dataset, policy_of(learner), step=step)
        outcome = await learner.obey(command)
        assert isinstance(outcome, Learned), outcome
        figures = {stat.name: stat.value for stat in outcome.stats}
        losses.append(figures["loss"])
    assert losses[-1] < losses[0]
    assert figures["margin"] > 0
    assert figures["accuracy"] > 0.75


def test_a_row_without_a_worse_answer_is_refused() -> None:
    row = PromptRow("p", pack_ints([1]), "", b"", "t", "s", completion=pack_ints([2]))
    with pytest.raises(Refused, match="a pair needs a prompt, a better and a worse answer"):
        pair_samples(row, 0)
