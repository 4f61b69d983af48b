"""Engine against learner at equal weights: importance weights and rejection.

Truncated importance sampling (F. Yao et al., "Your efficient RL framework secretly brings you
off-policy RL training", 2025) by token; by sequence and geometric mean as in GSPO (arXiv
2507.18071); rejection after "Masked importance sampling" (J. Liu et al., "When speed kills
stability", 2025). The ratio is learner's over engine's probability, before any update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ebbtide.spec import MismatchSpec
from services.learner.engine.objectives.tokens import lengths, sums

BOUND = 50.0
"""Log-ratios are cut off here, so that one absurd token is a large number and no infinity."""


@dataclass(frozen=True)
class Correction:
    """`weight` (N,) of each token's policy loss, 0 where it is rejected; None: all 1."""

    weight: torch.Tensor | None
    rejected: torch.Tensor | None


@torch.no_grad()
def correct(
    learner: torch.Tensor, engine: torch.Tensor, counts: torch.Tensor, spec: MismatchSpec
) -> Correction:
    """From both log-probabilities (N,) of the tokens of S sequences, `counts` (S,)."""
    if spec.weight == spec.reject == "none":
        return Correction(None, None)
    gap = learner - engine
    weight = torch.ones_like(gap)
    if spec.weight != "none":
        weight = _ratio(gap, counts, spec.weight).clamp(max=spec.weight_max)
    if spec.reject == "none":
        return Correction(weight, None)
    judged = _ratio(gap, counts, spec.reject)
    rejected = (judged < spec.reject_low) | (judged > spec.reject_high)
    return Correction(weight.masked_fill(rejected, 0.0), rejected)


def _ratio(gap: torch.Tensor, counts: torch.Tensor, level: str) -> torch.Tensor:
    if level == "sequence":
        gap = sums(gap, counts)
    elif level == "geometric":
        gap = sums(gap, counts) / lengths(counts)
    return torch.exp(gap.clamp(-BOUND, BOUND))
