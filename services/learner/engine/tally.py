"""What one micro-batch adds to the figures of its update."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.learner.core.metrics import BIN, BINS, BINS_A_SIDE, MAXES, SUMS
from services.learner.engine.corrections import BOUND, Correction
from services.learner.engine.objectives.kl import k3
from services.learner.engine.objectives.tokens import Surrogate


@dataclass(frozen=True)
class Made:
    """What was computed for N tokens: `losses` weighted, `kl` a term of them (None: there is none).

    `old`: log-probabilities at the start of the batch. `fresh` (N,): tokens for which the engine's
    are of the same weights. `ages` (N,): versions that a token's policy is older.
    """

    advantages: torch.Tensor
    losses: torch.Tensor
    surrogate: Surrogate
    kl: torch.Tensor | None
    correction: Correction
    old: torch.Tensor
    fresh: torch.Tensor
    ages: torch.Tensor


@torch.no_grad()
def tally(
    made: Made, *, rollout: torch.Tensor, entropy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of one micro-batch (order of SUMS, then BINS of ratios), maxima (MAXES), in float64."""
    stale = ~made.fresh
    x, y = (of.double().masked_fill(stale, 0.0) for of in (rollout, made.old))
    # Bounded, so that one absurd token shows up as e^50 and not as an infinity.
    gap = (y - x).clamp(-BOUND, BOUND)
    weight, one = torch.exp(gap).masked_fill(stale, 0.0), torch.ones_like(y)
    correction, advantages = made.correction, made.advantages.double()
    values = {
        "tokens": one,
        "loss": made.losses,
        "kl": torch.zeros_like(y) if made.kl is None else made.kl,
        "entropy": entropy,
        "clipped_low": made.surrogate.low,
        "clipped_high": made.surrogate.high,
        "stale": made.ages > 0,
        "age": made.ages,
        "fresh": made.fresh,
        "gap": -gap,
        "gap_k3": k3(gap),
        "x": x,
        "y": y,
        "xx": x * x,
        "yy": y * y,
        "xy": x * y,
        "w": weight,
        "ww": weight * weight,
        "correction": one if correction.weight is None else correction.weight,
        "rejected": torch.zeros_like(y) if correction.rejected is None else correction.rejected,
        "a": advantages,
        "aa": advantages * advantages,
    }
    ratio = made.surrogate.ratio.double()
    largest = {
        "ratio_max": _largest(ratio),
        "mismatch_ratio_max": _largest(torch.exp(gap.abs())),
    }
    sums = torch.stack([values[name].double().sum() for name in SUMS])
    return torch.cat([sums, _binned(ratio)]), torch.stack([largest[name] for name in MAXES])


def _binned(ratio: torch.Tensor) -> torch.Tensor:
    """How many ratios lie in each bin of their logarithm; the outer bins take all beyond them."""
    places = (torch.log(ratio) / BIN).round().nan_to_num(BINS_A_SIDE, BINS_A_SIDE, -BINS_A_SIDE)
    inside = places.clamp(-BINS_A_SIDE, BINS_A_SIDE).long() + BINS_A_SIDE
    return torch.bincount(inside, minlength=BINS).double()


def _largest(values: torch.Tensor) -> torch.Tensor:
    return values.max() if len(values) else values.new_ones(())
