"""Supervised updates: cross-entropy of the completion, token mean over each update."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from services.learner.core.samples import MicroBatch
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser, Stepped
from services.learner.engine.policy import Policy, Scored
from services.learner.engine.updates import accumulate, on_device


class Sft:
    """Runs the updates of one Learn, one after the other."""

    def __init__(self, *, gang: Gang, policy: Policy, optimiser: Optimiser) -> None:
        self._gang = gang
        self._policy = policy
        self._optimiser = optimiser

    def learn(self, updates: Sequence[Sequence[MicroBatch]]) -> dict[str, float]:
        """Do each update from this rank's micro-batches; return the metrics of the step.

        `loss` is the mean over updates of the mean over tokens, in nats; `loss_last` that of
        the last update.
        """
        done = [self._update(batches) for batches in updates]
        losses = [loss for loss, _, _ in done]
        last = done[-1][2]
        return {
            "loss": sum(losses) / len(losses),
            "loss_last": losses[-1],
            "computed_tokens": sum(tokens for _, tokens, _ in done),
            "grad_norm": last.grad_norm,
            "learning_rate": last.rate,
            "skipped_updates": float(sum(not stepped.done for _, _, stepped in done)),
        }

    def _update(self, batches: Sequence[MicroBatch]) -> tuple[float, float, Stepped]:
        mine = [on_device(batch, self._gang.device) for batch in batches]
        figures = torch.zeros(2, dtype=torch.float64, device=self._gang.device)

        def losses_of(i: int, scored: Scored) -> torch.Tensor:
            losses = -scored.logprobs * mine[i].weights
            if mine[i].real:
                figures[0] += losses.detach().double().sum()
                figures[1] += len(losses)
            return losses

        accumulate(self._policy, mine, temperature=1.0, losses_of=losses_of)
        loss, tokens = self._gang.total(figures).tolist()
        return loss, tokens, self._optimiser.step(finite=math.isfinite(loss))
