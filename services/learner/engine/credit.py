"""Advantages of tokens where the planner's are not yet all: KL in the reward, values, whitening.

The planner knows rewards, not log-probabilities; what a batch's advantages need of those is done
here, over all ranks, before the first pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ebbtide.spec import PolicyGradientSpec, PpoSpec, ReinforceSpec, RlooSpec
from services.learner.engine.gang import Gang
from services.learner.engine.objectives.kl import estimate
from services.learner.engine.objectives.tokens import in_rows, sums
from services.learner.engine.updates import Batch

EPSILON = 1e-8


@dataclass(frozen=True)
class Credit:
    """`advantages` of each batch's tokens, (N,); `kl`: mean estimate per token, None: not asked."""

    advantages: list[torch.Tensor]
    kl: float | None = None


@torch.no_grad()
def assign(
    batches: Sequence[Batch],
    gaps: Sequence[torch.Tensor] | None,
    *,
    coefficient: float,
    algorithm: PolicyGradientSpec,
    gang: Gang,
) -> Credit:
    """Advantages of all `batches` of this rank; every rank calls it.

    `gaps`: log reference - log policy of each batch's tokens before any update; None: KL is not
    in the reward.
    """
    found = [batch.advantages for batch in batches]
    kl = None
    if gaps is not None:
        kls = [estimate(gap, algorithm.kl.estimator) for gap in gaps]
        kl = _mean(batches, kls, gang)
        penalties = _penalties(batches, kls, algorithm, gang)
        found = [a - coefficient * p for a, p in zip(found, penalties, strict=True)]
    if isinstance(algorithm, ReinforceSpec):
        found = _whitened(batches, found, gang)
    return Credit(found, kl)


@torch.no_grad()
def assign_with_values(
    batches: Sequence[Batch],
    values: Sequence[torch.Tensor],
    gaps: Sequence[torch.Tensor] | None,
    *,
    coefficient: float,
    algorithm: PpoSpec,
    gang: Gang,
) -> tuple[Credit, list[torch.Tensor]]:
    """Advantages of PPO, whitened, and the returns that values should have had, (N,) each.

    A token's reward is less its own KL; the last one also has the answer's reward.
    """
    rewards = [torch.zeros_like(value) for value in values]
    kl = None
    if gaps is not None:
        kls = [estimate(gap, algorithm.kl.estimator) for gap in gaps]
        kl = _mean(batches, kls, gang)
        rewards = [-coefficient * found for found in kls]
    found = []
    for batch, value, reward in zip(batches, values, rewards, strict=True):
        last = (batch.counts.cumsum(0) - 1)[batch.counts > 0]
        reward[last] += batch.advantages[last]
        found.append(gae(value, reward, batch.counts, algorithm.gamma, algorithm.gae_lambda))
    returns = [a + v for a, v in zip(found, values, strict=True)]
    return Credit(_whitened(batches, found, gang), kl), returns


def gae(
    values: torch.Tensor, rewards: torch.Tensor, counts: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Generalised advantages (arXiv 1506.02438, equation 16) within each sequence, (N,).

    Nothing is worth anything after the last token.
    """
    value, inside = in_rows(values, counts)
    reward, _ = in_rows(rewards, counts)
    after = torch.nn.functional.pad(value[:, 1:], (0, 1))
    deltas = reward + gamma * after - value
    found, running = torch.zeros_like(deltas), deltas.new_zeros(len(deltas))
    for t in reversed(range(deltas.shape[1])):
        running = deltas[:, t] + gamma * lam * running
        found[:, t] = running
    return found[inside]


def _penalties(
    batches: Sequence[Batch],
    kls: Sequence[torch.Tensor],
    algorithm: PolicyGradientSpec,
    gang: Gang,
) -> list[torch.Tensor]:
    """What KL takes off each token's advantage, for a coefficient of 1.

    REINFORCE++ charges a token with what is still to come (arXiv 2501.03262, equation 8). The
    others charge the whole answer, and take the group's mean off as they do with rewards.
    """
    if isinstance(algorithm, ReinforceSpec):
        return [to_go(kl, batch.counts) for batch, kl in zip(batches, kls, strict=True)]
    whole = [sums(kl, batch.counts) for batch, kl in zip(batches, kls, strict=True)]
    means, members = _group_means(batches, whole, gang)
    factor = torch.ones_like(means)
    if isinstance(algorithm, RlooSpec):
        factor = members / (members - 1).clamp(min=1)
    found = []
    for batch, total in zip(batches, whole, strict=True):
        group = batch.groups.repeat_interleave(batch.counts)
        found.append((factor[group] * (total - means[group])).float())
    return found


def to_go(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The sum of each token's `values` and those after it in its sequence, shape (N,)."""
    rows, inside = in_rows(values, counts)
    return rows.flip(1).cumsum(1).flip(1)[inside]


def _group_means(
    batches: Sequence[Batch], whole: Sequence[torch.Tensor], gang: Gang
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over the members of each group, on whichever rank they are, and how many they are."""
    last = max((int(b.groups.max()) for b in batches if len(b.groups)), default=0)
    size = 1 + int(gang.largest(torch.tensor(last, device=gang.device)))
    table = torch.zeros(2, size, dtype=torch.float64, device=gang.device)
    for batch, total in zip(batches, whole, strict=True):
        if batch.real:
            some = batch.counts > 0
            first = (batch.counts.cumsum(0) - batch.counts)[some]
            table[0].index_add_(0, batch.groups[some], total[first].double())
            table[1].index_add_(0, batch.groups, torch.ones_like(batch.groups).double())
    table = gang.total(table)
    return table[0] / table[1].clamp(min=1), table[1]


def _mean(batches: Sequence[Batch], values: Sequence[torch.Tensor], gang: Gang) -> float:
    total, n = _moments(batches, values, gang)[:2]
    return total / max(1.0, n)


def _moments(
    batches: Sequence[Batch], values: Sequence[torch.Tensor], gang: Gang
) -> tuple[float, float, float]:
    """Sum, number and sum of squares over the tokens of all ranks."""
    found = torch.zeros(3, dtype=torch.float64, device=gang.device)
    for batch, value in zip(batches, values, strict=True):
        if batch.real:
            double = value.double()
            found += torch.stack(
                [double.sum(), torch.ones_like(double).sum(), (double * double).sum()]
            )
    total, n, squares = gang.total(found).tolist()
    return total, n, squares


def _whitened(
    batches: Sequence[Batch], values: Sequence[torch.Tensor], gang: Gang
) -> list[torch.Tensor]:
    """Mean 0 and deviation 1 over all tokens of the batch; equal values become 0."""
    total, n, squares = _moments(batches, values, gang)
    mean = total / max(1.0, n)
    deviation = max(0.0, squares / max(1.0, n) - mean * mean) ** 0.5
    return [(value - mean) / (deviation + EPSILON) for value in values]
