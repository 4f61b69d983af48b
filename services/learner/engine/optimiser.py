"""AdamW with gradient clipping, a schedule, and a guard against non-finite gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor

from ebbtide.spec import TrainingSpec
from services.learner.core.schedules import Schedule


@dataclass(frozen=True)
class Stepped:
    """One update: global gradient norm before clipping, learning rate, whether it was done."""

    grad_norm: float
    rate: float
    done: bool


class Optimiser:
    """Counts updates from 0; a skipped one counts too, so the schedule does not shift."""

    def __init__(self, module: torch.nn.Module, training: TrainingSpec, schedule: Schedule) -> None:
        self.updates = 0
        self.skipped = 0
        self._schedule = schedule
        self._max_norm = training.max_grad_norm
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self.adamw = torch.optim.AdamW(
            _decayed(module, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
        )
        self._begin()

    def _begin(self) -> None:
        """Make the moments now: a checkpoint before the first update must hold them.

        Otherwise the checkpoint library makes them by a step of its own, which would count.
        """
        for parameter in self._parameters:
            self.adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def step(self, *, finite: bool = True) -> Stepped:
        """Apply the accumulated gradients once and drop them.

        Every rank must call this with the same `finite`. A norm that is not finite is seen by
        all ranks alike, because it is a global one; then nothing is applied.
        """
        norm = self._clip()
        rate = self._schedule.rate(self.updates)
        done = finite and math.isfinite(norm)
        if done:
            for group in self.adamw.param_groups:
                group["lr"] = rate
            self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self.updates += 1
        self.skipped += not done
        return Stepped(grad_norm=norm, rate=rate, done=done)

    def _clip(self) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._max_norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def _decayed(module: torch.nn.Module, decay: float) -> list[dict[str, object]]:
    """Weight decay on matrices alone, not on biases and norms, as is customary."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
