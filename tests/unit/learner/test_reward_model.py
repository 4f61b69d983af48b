"""A reward model: loss and gradient, a whole job, and what the reward service reads of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from ebbtide.demo import tokenizer as demo
from ebbtide.engines.reward_model import RewardModel
from ebbtide.errors import Refused
from ebbtide.spec import RewardModelSpec, ScheduleSpec, TrainingSpec
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Learned
from services.learner.core.samples import pad
from services.learner.core.schedules import Schedule
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.publishing import collect, write_content, write_skeleton
from services.learner.engine.reward_model import Preferences, load_score_model
from tests.unit.learner.builders import a_dataset, a_rank, an_sft_step, job_spec
from tests.unit.learner.gangs import close, lay, parameters_of, run_ranks
from tests.unit.learner.test_dpo import pairs
from tests.unit.learner.test_rank import policy_of

CENTRING = 0.1


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


def engine(gang: Gang, folder: Path) -> Preferences:
    model = load_score_model(folder, gang, mixed_precision=False)
    with torch.no_grad():
        for n, parameter in enumerate(model.module.head.parameters()):
            parameter.add_(0.1 * (n + 1))
    sizes = TrainingSpec(total_steps=8, learning_rate=1e-2)
    optimiser = Optimiser(model.module, sizes, Schedule(ScheduleSpec(), 1e-2, 8), gang=gang)
    spec = RewardModelSpec(type="reward-model", centring=CENTRING)
    return Preferences(gang=gang, model=model, optimiser=optimiser, spec=spec)


def gradients(made: Preferences) -> dict[str, np.ndarray]:
    named = made._model.module.named_parameters()
    return {n: _full(p.grad) for n, p in named if p.grad is not None}


def _full(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.full_tensor().numpy()
    return found


def written_out(made: Preferences) -> torch.Tensor:
    """The papers' loss, one pair after the other, by autograd."""
    losses, found = [], pairs()
    for better, worse in zip(found[::2], found[1::2], strict=True):
        r = [
            made._model.module(torch.from_numpy(pad([s]).tokens), torch.tensor([len(s.tokens) - 1]))
            for s in (better, worse)
        ]
        losses.append(-logsigmoid(r[0] - r[1]) + CENTRING * (r[0] + r[1]) ** 2)
    return torch.cat(losses).mean()


@pytest.mark.parametrize("limit", [20, 10_000])
def test_loss_and_gradient_are_the_papers_in_any_layout(
    gang: Gang, model: Path, limit: int
) -> None:
    made = engine(gang, model)
    wanted = written_out(made)
    wanted.backward()
    gradient = gradients(made)
    made._model.module.zero_grad()
    figures = made.gradient(lay(pairs(), limit=limit))
    assert math.isclose(figures["loss"], float(wanted.detach()), rel_tol=1e-5)
    assert close(gradient, gradients(made), 1e-4)


def slopes(gang: Gang, model: str) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    made = engine(gang, Path(model))
    return made.gradient(lay(pairs(), rank=gang.rank, ranks=gang.size, limit=40)), gradients(made)


def test_two_ranks_find_the_gradient_of_one(gang: Gang, model: Path, tmp_path: Path) -> None:
    figures, mine = slopes(gang, str(model))
    [_, (theirs, found)] = run_ranks(2, slopes, tmp_path, str(model))
    assert close(mine, found)
    assert all(math.isclose(figures[n], theirs[n], abs_tol=1e-4) for n in figures)


async def test_a_job_comes_to_score_better_answers_higher(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    algorithm = {"type": "reward-model", "batch_size": 4, "updates_per_step": 3}
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
    assert losses[0] < math.log(2) + 1e-3
    assert losses[-1] < losses[0]
    assert figures["accuracy"] > 0.75


def test_the_reward_service_reads_the_score_that_was_trained(
    gang: Gang, model: Path, tmp_path: Path
) -> None:
    made = engine(gang, model)
    content = collect(made._model, gang, dtype=torch.float32)
    skeleton, folder = tmp_path / "skeleton", tmp_path / "published"
    write_skeleton(
        skeleton,
        model=model,
        tokenizer=model,
        chat_template=None,
        dtype=torch.float32,
        scores=True,
    )
    write_content(folder, content, skeleton, version=1, attempt=1)
    demo.build().save(str(folder / "tokenizer.json"))
    scorer = RewardModel(folder)
    ids = scorer._tokens("abc")
    [score] = scorer.scores([("ab", "c")])
    wanted = made._model.module(torch.tensor([ids]), torch.tensor([len(ids) - 1]))
    assert score == pytest.approx(float(wanted.detach()), abs=1e-5)
    assert score != pytest.approx(0.0, abs=1e-3)


def test_a_reward_model_goes_on_with_the_head_that_it_has(
    gang: Gang, model: Path, tmp_path: Path
) -> None:
    made = engine(gang, model)
    content = collect(made._model, gang, dtype=torch.float32)
    skeleton, folder = tmp_path / "skeleton", tmp_path / "published"
    write_skeleton(
        skeleton,
        model=model,
        tokenizer=model,
        chat_template=None,
        dtype=torch.float32,
        scores=True,
    )
    write_content(folder, content, skeleton, version=1, attempt=1)
    again = load_score_model(folder, gang, mixed_precision=False)
    assert close(parameters_of(made._model.module), parameters_of(again.module), 0.0)


def test_what_is_no_model_is_refused(gang: Gang, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be loaded as reward model"):
        load_score_model(tmp_path, gang, mixed_precision=False)
