"""The GRPO loss per token (DeepSeekMath, arXiv 2402.03300, equations 3 and 4).

All tensors have shape (N,): the selected tokens of one micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.learner.core.metrics import MAXES, SUMS


@dataclass(frozen=True)
class Clip:
    """Bounds of the probability ratio: [1 - low, 1 + high]."""

    low: float
    high: float


@dataclass(frozen=True)
class Terms:
    """What the loss is made of. `loss` and `kl` carry gradient; `reference` None: no KL."""

    ratio: torch.Tensor
    policy: torch.Tensor
    kl: torch.Tensor | None


def grpo_terms(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    reference: torch.Tensor | None,
    clip: Clip,
) -> Terms:
    """Clipped surrogate (negated: to be minimised) and estimate of KL(policy || reference).

    The k3 estimate is weighted by the ratio (DeepSeek-V3.2, arXiv 2512.02556): differentiating
    plain k3 gives the gradient of KL(reference || policy) instead, also where the ratio is 1.
    """
    ratio = torch.exp(logprobs - old)
    clipped = torch.clamp(ratio, 1.0 - clip.low, 1.0 + clip.high)
    policy = -torch.minimum(ratio * advantages, clipped * advantages)
    kl = None if reference is None else k3(reference - logprobs) * ratio
    return Terms(ratio, policy, kl)


def k3(gap: torch.Tensor) -> torch.Tensor:
    """exp(gap) - gap - 1: unbiased for KL(p || q) at samples of p, gap = log q - log p >= 0."""
    return torch.expm1(gap) - gap


@torch.no_grad()
def tally(
    terms: Terms,
    *,
    losses: torch.Tensor,
    logprobs: torch.Tensor,
    rollout: torch.Tensor,
    entropy: torch.Tensor,
    advantages: torch.Tensor,
    clip: Clip,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums (order of SUMS) and maxima (order of MAXES) of one micro-batch, in float64."""
    x, y = rollout.double(), logprobs.double()
    # Bounded, so that one absurd token shows up as e^50 and not as an infinity.
    gap = (y - x).clamp(-50.0, 50.0)
    weight, ratio = torch.exp(gap), terms.ratio.double()
    kl = y.new_zeros(()) if terms.kl is None else terms.kl.double().sum()
    values = {
        "tokens": torch.ones_like(y).sum(),
        "loss": losses.double().sum(),
        "kl": kl,
        "entropy": entropy.double().sum(),
        "clipped_low": ((ratio < 1.0 - clip.low) & (advantages < 0)).double().sum(),
        "clipped_high": ((ratio > 1.0 + clip.high) & (advantages > 0)).double().sum(),
        "gap": -gap.sum(),
        "gap_k3": k3(gap).sum(),
        "x": x.sum(),
        "y": y.sum(),
        "xx": (x * x).sum(),
        "yy": (y * y).sum(),
        "xy": (x * y).sum(),
        "w": weight.sum(),
        "ww": (weight * weight).sum(),
    }
    largest = {"ratio_max": _largest(ratio), "mismatch_ratio_max": _largest(torch.exp(gap.abs()))}
    return torch.stack([values[n] for n in SUMS]), torch.stack([largest[n] for n in MAXES])


def _largest(values: torch.Tensor) -> torch.Tensor:
    return values.max() if len(values) else values.new_ones(())
