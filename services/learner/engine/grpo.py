"""GRPO over one frozen batch: one or more updates, and what they tell about the run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ebbtide.spec import GrpoSpec, TrainingSpec
from services.learner.core.metrics import MAXES, SUMS, update_stats
from services.learner.core.samples import MicroBatch
from services.learner.engine.gang import Gang
from services.learner.engine.loss import Clip, grpo_terms, tally
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import Policy, Scored
from services.learner.engine.updates import Batch, accumulate, on_device

Totals = tuple[torch.Tensor, torch.Tensor]


class Grpo:
    """`reference`: the frozen policy of the KL term, None without one."""

    def __init__(
        self,
        *,
        gang: Gang,
        policy: Policy,
        reference: Policy | None,
        optimiser: Optimiser,
        algorithm: GrpoSpec,
        training: TrainingSpec,
    ) -> None:
        self._gang = gang
        self._policy = policy
        self._reference = reference
        self._optimiser = optimiser
        self._beta = algorithm.kl_coefficient
        self._clip = Clip(algorithm.clip_low, algorithm.clip_high)
        self._passes = training.updates_per_batch
        self._temperature = training.temperature

    def learn(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Update from this rank's `batches` (equally many on every rank); return the metrics.

        Mismatch is that of the first pass, at the weights that sampled; the rest is the last
        pass's. Old log-probabilities are those of the first pass, before any update: with one
        pass the ratio is exactly 1.
        """
        mine = [on_device(batch, self._gang.device) for batch in batches]
        reference = self._reference_logprobs(mine)
        old: list[torch.Tensor | None] = [None] * len(mine)
        passes = [self._pass(mine, old, reference) for _ in range(self._passes)]
        mismatch = {k: v for k, v in passes[0].items() if k.startswith("mismatch_")}
        skipped = sum(stats["skipped_updates"] for stats in passes)
        return {**passes[-1], **mismatch, "skipped_updates": skipped}

    def gradient(self, batches: Sequence[MicroBatch], old: Sequence[torch.Tensor]) -> float:
        """Leave the gradient of one pass on the parameters, without a step; return the loss.

        For checks against other implementations; `old` gives each batch's old
        log-probabilities.
        """
        mine = [on_device(batch, self._gang.device) for batch in batches]
        sums, _ = self._accumulate(mine, list(old), self._reference_logprobs(mine))
        return float(self._gang.total(sums)[SUMS.index("loss")])

    def _pass(
        self,
        batches: Sequence[Batch],
        old: list[torch.Tensor | None],
        reference: Sequence[torch.Tensor | None],
    ) -> dict[str, float]:
        sums, maxes = self._accumulate(batches, old, reference)
        totals = self._gang.total(sums).tolist()
        stats = update_stats(totals, self._gang.largest(maxes).tolist())
        stepped = self._optimiser.step(finite=math.isfinite(stats["loss"]))
        return {
            **stats,
            "grad_norm": stepped.grad_norm,
            "learning_rate": stepped.rate,
            "skipped_updates": float(not stepped.done),
        }

    def _accumulate(
        self,
        batches: Sequence[Batch],
        old: list[torch.Tensor | None],
        reference: Sequence[torch.Tensor | None],
    ) -> Totals:
        device = self._gang.device
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=device)
        maxes = torch.ones(len(MAXES), dtype=torch.float64, device=device)

        def losses_of(i: int, scored: Scored) -> torch.Tensor:
            nonlocal sums, maxes
            before = old[i]
            before = scored.logprobs.detach() if before is None else before
            old[i] = before
            losses, (added, largest) = self._losses(batches[i], scored, before, reference[i])
            if batches[i].real:
                sums, maxes = sums + added, torch.maximum(maxes, largest)
            return losses

        accumulate(self._policy, batches, temperature=self._temperature, losses_of=losses_of)
        return sums, maxes

    def _losses(
        self, batch: Batch, scored: Scored, old: torch.Tensor, reference: torch.Tensor | None
    ) -> tuple[torch.Tensor, Totals]:
        terms = grpo_terms(scored.logprobs, old, batch.advantages, reference, self._clip)
        each = terms.policy if terms.kl is None else terms.policy + self._beta * terms.kl
        losses = each * batch.weights
        figures = tally(
            terms,
            losses=losses,
            logprobs=scored.logprobs,
            rollout=batch.rollout,
            entropy=scored.entropy,
            advantages=batch.advantages,
            clip=self._clip,
        )
        return losses, figures

    @torch.no_grad()
    def _reference_logprobs(self, batches: Sequence[Batch]) -> list[torch.Tensor | None]:
        frozen = self._reference
        if frozen is None:
            return [None] * len(batches)
        return [
            frozen.score(
                b.tokens, b.where, b.targets, temperature=self._temperature, shared=b.shared
            ).logprobs
            for b in batches
        ]
