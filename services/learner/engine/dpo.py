"""Direct Preference Optimization (Rafailov et al., arXiv 2305.18290, equation 7).

Of a pair with answers w (better) and l (worse), h = beta * ((log p(w) - log r(w)) - (log p(l) -
log r(l))) by policy p and reference r, sums over the answer's tokens. The loss is -log sigmoid(h),
with label smoothing e (1 - e) * -log sigmoid(h) + e * -log sigmoid(-h) (cDPO), mean over pairs.

Its derivative by log p(w) is a number per pair, and that by log p(l) its negative. A first pass
without gradient finds them, so that the two answers of a pair may lie in any micro-batch of any
rank: the second pass is a weighted sum of log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.functional import logsigmoid

from ebbtide.spec import DpoSpec
from services.learner.core.samples import MicroBatch
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser, Stepped, of_pairs
from services.learner.engine.policy import Policy, Scored
from services.learner.engine.updates import Batch, accumulate, on_device

_FIGURES = ("loss", "accuracy", "margin", "chosen_reward", "rejected_reward")


class Dpo:
    """Runs the updates of one Learn, one after the other. `reference`: the initial policy."""

    def __init__(
        self,
        *,
        gang: Gang,
        policy: Policy,
        reference: Policy,
        optimiser: Optimiser,
        spec: DpoSpec,
    ) -> None:
        self._gang = gang
        self._policy = policy
        self._reference = reference
        self._optimiser = optimiser
        self._spec = spec

    def learn(self, updates: Sequence[Sequence[MicroBatch]]) -> dict[str, float]:
        """Do each update from this rank's micro-batches; return the metrics of the step.

        Means over updates of the mean over pairs: `loss` (nats), `accuracy` (share whose better
        answer has the higher implicit reward), `margin` of these rewards, and both of them.
        """
        return of_pairs([self._update(batches) for batches in updates])

    def gradient(self, batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Add the gradient of one update; return its figures."""
        mine = [on_device(batch, self._gang.device) for batch in batches]
        rewards = self._rewards(mine)
        margins = rewards[0] - rewards[1]
        pairs, e = len(margins), self._spec.label_smoothing
        slopes = self._spec.beta * (e * torch.sigmoid(margins) - (1 - e) * torch.sigmoid(-margins))

        def losses_of(i: int, scored: Scored) -> torch.Tensor:
            batch = mine[i]
            if not batch.real:
                return scored.logprobs * 0.0
            pair = torch.repeat_interleave(batch.groups, batch.counts)
            return scored.logprobs * batch.advantages * slopes[pair].float() / pairs

        accumulate(self._policy, mine, temperature=1.0, losses_of=losses_of)
        losses = -(1 - e) * logsigmoid(margins) - e * logsigmoid(-margins)
        told = (losses, (margins > 0).double(), margins, *rewards)
        tokens = sum(float(len(batch.targets)) for batch in mine if batch.real)
        all_tokens = self._gang.total(torch.tensor(tokens, dtype=torch.float64))
        figures = {n: float(t.mean()) for n, t in zip(_FIGURES, told, strict=True)}
        return {**figures, "computed_tokens": float(all_tokens)}

    def _update(self, batches: Sequence[MicroBatch]) -> tuple[dict[str, float], Stepped]:
        figures = self.gradient(batches)
        return figures, self._optimiser.step(finite=math.isfinite(figures["loss"]))

    @torch.no_grad()
    def _rewards(self, batches: Sequence[Batch]) -> torch.Tensor:
        """Implicit rewards beta * (log p - log r) of the better and worse answers, (2, pairs)."""
        most = self._gang.largest(
            torch.tensor([max((int(b.groups.max()) for b in batches if b.real), default=0)])
        )
        found = torch.zeros(2, int(most) + 1, dtype=torch.float64, device=self._gang.device)
        for batch in batches:  # dummies too: the ranks compute in step
            ratio = self._score(self._policy, batch) - self._score(self._reference, batch)
            if not batch.real:
                continue
            sequence = torch.repeat_interleave(
                torch.arange(len(batch.counts), device=ratio.device), batch.counts
            )
            sums = torch.zeros(len(batch.counts), dtype=torch.float64, device=ratio.device)
            sums.index_add_(0, sequence, ratio.double())
            worse = (batch.advantages[batch.counts.cumsum(0) - 1] < 0).long()
            found.index_put_((worse, batch.groups), sums, accumulate=True)
        return self._gang.total(found) * self._spec.beta

    def _score(self, model: Policy, batch: Batch) -> torch.Tensor:
        scored = model.score(
            batch.tokens, batch.where, batch.targets, temperature=1.0, shared=batch.shared
        )
        return scored.logprobs
