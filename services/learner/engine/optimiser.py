"""AdamW with gradient clipping, a schedule, and a guard against non-finite gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw

from ebbtide.spec import TrainingSpec
from services.learner.core.schedules import Schedule
from services.learner.engine.gang import Gang


@dataclass(frozen=True)
class Stepped:
    """One update: global gradient norm before clipping, learning rate, whether it was done."""

    grad_norm: float
    rate: float
    done: bool


def of_pairs(done: Sequence[tuple[Mapping[str, float], Stepped]]) -> dict[str, float]:
    """Metrics of a step that learns from pairs: means of its updates' figures, and the last one's."""
    figures, last = done[-1]
    means = {name: sum(found[name] for found, _ in done) / len(done) for name in figures}
    return {
        **means,
        "loss_last": figures["loss"],
        "grad_norm": last.grad_norm,
        "learning_rate": last.rate,
        "skipped_updates": float(sum(not stepped.done for _, stepped in done)),
    }


class Optimiser:
    """Counts updates from 0; a skipped one counts too, so the schedule does not shift.

    The state is kept in a torch AdamW, where checkpoints find it; the step itself runs on this
    rank's shards, because going through distributed tensors costs more than a small update.
    """

    def __init__(
        self, module: torch.nn.Module, training: TrainingSpec, schedule: Schedule, *, gang: Gang
    ) -> None:
        self.updates = 0
        self.skipped = 0
        self._gang = gang
        self._schedule = schedule
        self._max_norm = training.max_grad_norm
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self.adamw = torch.optim.AdamW(
            _decayed(self._parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
        )
        self._begin()

    @torch.no_grad()
    def step(self, *, finite: bool = True, hold: bool = False) -> Stepped:
        """Apply the accumulated gradients once and drop them; on `hold` only drop them.

        Every rank must call this with the same `finite`. A norm that is not finite is seen by
        all ranks alike, because it is a global one; then nothing is applied.
        """
        gradients = [local(p.grad) for p in self._parameters]
        norm = self._norm(gradients)
        rate = self._schedule.rate(self.updates)
        done = finite and math.isfinite(norm)
        if done and not hold:
            _scale(gradients, self._max_norm / (norm + 1e-6))
            for group in self.adamw.param_groups:
                self._apply(group, rate)
        self.adamw.zero_grad(set_to_none=True)
        self.updates += not hold
        self.skipped += not done and not hold
        return Stepped(grad_norm=norm, rate=rate, done=done)

    def _begin(self) -> None:
        """Make the moments now: a checkpoint before the first update must hold them.

        Otherwise the checkpoint library makes them by a step of its own, which would count.
        """
        for parameter in self._parameters:
            self.adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def _norm(self, gradients: list[torch.Tensor]) -> float:
        """Norm over all ranks: every element is on exactly one of them."""
        mine = torch.nn.utils.get_total_norm(gradients).double() ** 2
        return math.sqrt(float(self._gang.total(mine)))

    def _apply(self, group: dict[str, Any], rate: float) -> None:
        group["lr"] = rate
        states = [self.adamw.state[p] for p in group["params"]]
        beta1, beta2 = group["betas"]
        adamw(
            [local(p) for p in group["params"]],
            [local(p.grad) for p in group["params"]],
            [local(state["exp_avg"]) for state in states],
            [local(state["exp_avg_sq"]) for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=rate,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """This rank's part of a parameter or gradient."""
    assert tensor is not None, "every parameter takes part in the loss"
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _scale(gradients: list[torch.Tensor], factor: float) -> None:
    """Multiply by `factor` where that makes them smaller."""
    if factor < 1.0:
        for gradient in gradients:
            gradient.mul_(factor)


def _decayed(parameters: list[torch.nn.Parameter], decay: float) -> list[dict[str, object]]:
    """Weight decay on matrices alone, not on biases and norms, as is customary."""
    groups = (
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    )
    return [group for group in groups if group["params"]]
