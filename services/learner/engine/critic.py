"""PPO's critic: the value of every position that the policy chose (arXiv 1707.06347, section 5).

A model of its own, sharded over the same ranks, with an optimiser of its own. It starts as the
policy's body (or that of another model) with a head of zeros, so its first values are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from ebbtide.errors import Refused
from ebbtide.spec import CriticSpec, ScheduleSpec, TrainingSpec
from services.learner.core.schedules import Schedule
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import (
    is_small,
    layers_of,
    meet_in_last,
    prepare,
    shard,
)
from services.learner.engine.updates import Batch


class ValueModel(torch.nn.Module):
    """A transformer's body with one number on top."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.head = torch.nn.Linear(body.config.get_text_config().hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(
        self, tokens: torch.Tensor, where: torch.Tensor, read: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Values (N, 1) at the flattened positions `where` of `tokens` (rows, width)."""
        hidden = self.body(input_ids=tokens, use_cache=False, **read).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, where)
        values: torch.Tensor = self.head(chosen)
        return values


@dataclass(frozen=True)
class Target:
    """What the values of one batch's tokens are to become. `old`: before the first pass; (N,)."""

    old: torch.Tensor
    returns: torch.Tensor


class Critic:
    """Collective, like the policy."""

    def __init__(
        self, *, gang: Gang, module: ValueModel, optimiser: Optimiser, spec: CriticSpec, small: bool
    ) -> None:
        self.module = module
        self.optimiser = optimiser
        self.steps = 0
        """Batches learnt from; a part of a checkpoint."""
        self._gang = gang
        self._clip = spec.value_clip
        self._warmup = spec.warmup_steps
        self._small = small

    @property
    def warming(self) -> bool:
        """Whether the critic alone learns."""
        return self.steps < self._warmup

    @torch.no_grad()
    def values(self, batches: Sequence[Batch]) -> list[torch.Tensor]:
        """Values of each batch's tokens, (N,), before they are chosen."""
        return [self._score(batch) for batch in batches]

    def learn(
        self, batches: Sequence[Batch], targets: Sequence[Target], *, passes: int
    ) -> dict[str, float]:
        """Fit the values to `targets`, token mean; the metrics are the last pass's."""
        for _ in range(passes):
            loss = self.gradient(batches, targets)
            stepped = self.optimiser.step(finite=math.isfinite(loss))
        self.steps += 1
        return {
            "value_loss": loss,
            "value_explained": self._explained(batches, targets),
            "critic_grad_norm": stepped.grad_norm,
            "critic_learning_rate": stepped.rate,
        }

    def gradient(self, batches: Sequence[Batch], targets: Sequence[Target]) -> float:
        """Leave the gradient of one pass on the parameters, without a step; return the loss."""
        tokens = self._total([float(len(b.targets)) if b.real else 0.0 for b in batches])
        losses = [self._backward(i, batches, targets, tokens) for i in range(len(batches))]
        return self._total(losses)

    def _backward(
        self, i: int, batches: Sequence[Batch], targets: Sequence[Target], tokens: float
    ) -> float:
        meet_in_last(self.module, last=i == len(batches) - 1, small=self._small)
        values = self._score(batches[i])
        weight = float(batches[i].real) / max(1.0, tokens)
        loss = value_losses(values, targets[i], self._clip).sum() * weight
        loss.backward()  # type: ignore[no-untyped-call] # autograd's backward is untyped
        return float(loss.detach())

    def _score(self, batch: Batch) -> torch.Tensor:
        read: dict[str, torch.Tensor] = {}
        if batch.shared is not None:
            read = {"attention_mask": batch.shared.mask, "position_ids": batch.shared.positions}
        values: torch.Tensor = self.module(batch.tokens, batch.where, read)
        return values.squeeze(-1).float()

    def _total(self, values: Sequence[float]) -> float:
        mine = torch.tensor(sum(values), dtype=torch.float64, device=self._gang.device)
        return float(self._gang.total(mine))

    def _explained(self, batches: Sequence[Batch], targets: Sequence[Target]) -> float:
        """Share of the returns' variance that the values had before this batch explained."""
        sums = torch.zeros(5, dtype=torch.float64, device=self._gang.device)
        for batch, target in zip(batches, targets, strict=True):
            if batch.real:
                returns, error = target.returns.double(), (target.returns - target.old).double()
                parts = (torch.ones_like(error), returns, returns**2, error, error**2)
                sums += torch.stack([part.sum() for part in parts])
        n, returns_sum, squares, errors, error_squares = self._gang.total(sums).tolist()
        variance = squares - returns_sum**2 / max(1.0, n)
        residual = error_squares - errors**2 / max(1.0, n)
        return 0.0 if variance <= 1e-12 * max(1.0, n) else 1.0 - residual / variance


def value_losses(values: torch.Tensor, target: Target, clip: float | None) -> torch.Tensor:
    """Half the squared error of each value, or of the value moved at most `clip`: the larger."""
    plain = (values - target.returns) ** 2
    if clip is None:
        return plain / 2
    near = target.old + (values - target.old).clamp(-clip, clip)
    return torch.maximum(plain, (near - target.returns) ** 2) / 2


def load_critic(
    folder: Path,
    gang: Gang,
    spec: CriticSpec,
    training: TrainingSpec,
    *,
    mixed_precision: bool,
    checkpointing: bool = False,
    offload: bool = False,
    backend: str = "",
) -> Critic:
    """Read the body of a Hugging Face folder and shard it; raises Refused."""
    try:
        body = AutoModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        field = "/algorithm/critic/uri"
        raise Refused(f"{folder} cannot be loaded as critic: {error}", field=field) from error
    layers = layers_of(body)
    prepare(layers, checkpointing=checkpointing, backend=backend)
    module = ValueModel(body)
    module.eval()
    small = is_small(module)
    shard(module, gang, layers=layers, small=small, mixed=mixed_precision, offload=offload)
    rated = training.model_copy(update={"learning_rate": spec.learning_rate})
    optimiser = Optimiser(module, rated, Schedule(ScheduleSpec(), spec.learning_rate, 1), gang=gang)
    return Critic(gang=gang, module=module, optimiser=optimiser, spec=spec, small=small)
