"""Advantages, losses and gradients by the learner's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.ppo_parity.rollouts import PROMPT, ROWS, TEMPERATURE, Arrays, Case
from ebbtide.rl.batching import partition
from ebbtide.spec import CriticSpec, PpoSpec, ScheduleSpec, TrainingSpec
from services.learner.core.samples import MicroBatch, Sample, Weighting, pad
from services.learner.core.schedules import Schedule
from services.learner.engine.credit import assign_with_values
from services.learner.engine.critic import Critic, Target, ValueModel
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import Policy, Scored, Shared, shard
from services.learner.engine.policy_gradient import PolicyGradient
from services.learner.engine.updates import on_device

TRAINING = TrainingSpec(total_steps=1, temperature=TEMPERATURE)


class TablePolicy(Policy):
    """The next token's logits are a row of a table."""

    def __init__(self, module: torch.nn.Module) -> None:  # no transformer, so no hook
        self.module = module
        self._small = True

    def score(
        self,
        tokens: torch.Tensor,
        where: torch.Tensor,
        targets: torch.Tensor,
        *,
        temperature: float,
        shared: Shared | None = None,  # noqa: ARG002 - rows are apart, a table attends to nothing
        explore: bool = False,  # noqa: ARG002 - no entropy bonus
    ) -> Scored:
        """As `Policy.score`."""
        logits = self.module(tokens.reshape(-1)[where]) / temperature
        logprobs = torch.log_softmax(logits, -1)
        entropy = -(logprobs.exp() * logprobs).sum(-1).detach()
        return Scored(logprobs.gather(-1, targets[:, None]).squeeze(-1), entropy)


class TableValues(ValueModel):
    """A token's value is an entry of a table."""

    def __init__(self, table: torch.Tensor) -> None:
        torch.nn.Module.__init__(self)
        self.table = _table(table)

    def forward(
        self,
        tokens: torch.Tensor,
        where: torch.Tensor,
        read: dict[str, torch.Tensor],  # noqa: ARG002 - a table attends to nothing
    ) -> torch.Tensor:
        """As `ValueModel.forward`."""
        values: torch.Tensor = self.table(tokens.reshape(-1)[where])
        return values


def compute(gang: Gang, data: Arrays, case: Case, *, limit: int) -> dict[str, NDArray[Any]]:
    """One case, in micro-batches of at most `limit` padded tokens."""
    spec = spec_of(case)
    rows = {name: batches(data, name, limit) for name in ("old", "values", "reference")}
    ours = [on_device(batch, gang.device) for batch in rows["old"]]
    old, values, reference = (_recorded(rows[name]) for name in ("old", "values", "reference"))
    gaps = [r - o for r, o in zip(reference, old, strict=True)]
    credit, returns = assign_with_values(
        ours, values, gaps, coefficient=case.kl_coefficient, algorithm=spec, gang=gang
    )
    plain = [r - v for r, v in zip(returns, values, strict=True)]
    credited = [
        MicroBatch(**{**vars(batch), "advantages": found.numpy()})
        for batch, found in zip(rows["old"], credit.advantages, strict=True)
    ]
    learner, policy = _learner(gang, data, spec)
    critic = _critic(gang, data, spec.critic)
    loss = learner.gradient(credited, old)
    targets = [Target(v, r) for v, r in zip(values, returns, strict=True)]
    value_loss = critic.gradient(ours, targets)
    return {
        "advantages": in_order(data, plain, limit),
        "targets": in_order(data, returns, limit),
        "loss": np.asarray(loss),
        "value_loss": np.asarray(value_loss),
        "policy_gradient": _gradient(policy),
        "critic_gradient": _gradient(critic.module),
    }


def spec_of(case: Case) -> PpoSpec:
    """The algorithm in a job's words; KL of k1 in the reward is the default."""
    return PpoSpec(
        type="ppo",
        gamma=case.gamma,
        gae_lambda=case.gae_lambda,
        clip_low=case.clip_low,
        clip_high=case.clip_high,
        critic=CriticSpec(value_clip=case.value_clip),
    )


def batches(data: Arrays, name: str, limit: int) -> list[MicroBatch]:
    """The rows without padding; what they record of each chosen token is `data[name]`."""
    weighting = Weighting("token-mean", int(data["mask"].sum()), ROWS, 0)
    found = []
    for i in range(ROWS):
        chosen = np.flatnonzero(data["chosen"][i])
        found.append(
            Sample(
                tokens=data["tokens"][i][: PROMPT + data["lengths"][i]],
                chosen=chosen + PROMPT,
                logprobs=data[name][i][: len(chosen)],
                advantage=float(data["rewards"][i]),
                weight=weighting.of(len(chosen)),
            )
        )
    return [pad([found[i] for i in members]) for members in _layout(data, limit)]


def in_order(data: Arrays, found: Sequence[torch.Tensor], limit: int) -> NDArray[np.float32]:
    """What was found of each micro-batch's tokens, row after row of the rollouts."""
    order = [i for members in _layout(data, limit) for i in members]
    sizes = [int(data["mask"][i].sum()) for i in order]
    parts = dict(zip(order, torch.split(torch.cat([*found]), sizes), strict=True))
    return torch.cat([parts[i] for i in range(ROWS)]).numpy()


def _layout(data: Arrays, limit: int) -> list[list[int]]:
    lengths = [PROMPT + int(length) for length in data["lengths"]]
    places, count = partition(lengths, ranks=1, limit=limit)
    return [[i for i, at in enumerate(places) if at == (0, j)] for j in range(count)]


def _recorded(rows: Sequence[MicroBatch]) -> list[torch.Tensor]:
    return [torch.from_numpy(batch.rollout) for batch in rows]


def _learner(gang: Gang, data: Arrays, spec: PpoSpec) -> tuple[PolicyGradient, torch.nn.Module]:
    module = _table(torch.from_numpy(data["policy"]))
    shard(module, gang, layers=[], small=True, mixed=False)
    learner = PolicyGradient(
        gang=gang,
        policy=TablePolicy(module),
        reference=None,
        optimiser=_optimiser(gang, module),
        algorithm=spec,
        training=TRAINING,
    )
    return learner, module


def _critic(gang: Gang, data: Arrays, spec: CriticSpec) -> Critic:
    module = TableValues(torch.from_numpy(data["critic"]))
    shard(module, gang, layers=[], small=True, mixed=False)
    optimiser = _optimiser(gang, module)
    return Critic(gang=gang, module=module, optimiser=optimiser, spec=spec, small=True)


def _optimiser(gang: Gang, module: torch.nn.Module) -> Optimiser:
    return Optimiser(module, TRAINING, Schedule(ScheduleSpec(), 0.0, 1), gang=gang)


def _table(values: torch.Tensor) -> torch.nn.Embedding:
    rows, width = values.shape
    return torch.nn.Embedding(rows, width, _weight=values.clone())


def _gradient(module: torch.nn.Module) -> NDArray[np.float32]:
    (parameter,) = module.parameters()
    gradient: Any = parameter.grad  # a DTensor
    found: NDArray[np.float32] = gradient.full_tensor().numpy()
    return found
