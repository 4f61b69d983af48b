"""What objectives are made of: tokens of sequences that lie one after the other.

All tensors of N tokens have shape (N,). Sums over a sequence go through padded rows, whose order
of additions is fixed; scattered additions on a GPU have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch


@dataclass(frozen=True)
class Clip:
    """Bounds of the probability ratio: [1 - low, 1 + high]."""

    low: float
    high: float


@dataclass(frozen=True)
class Tokens:
    """N tokens of S sequences. `logprobs` alone carries gradient; `counts` (S,) sums to N."""

    logprobs: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    counts: torch.Tensor

    @cached_property
    def ratio(self) -> torch.Tensor:
        """Probability of each token, over that before the first pass."""
        return torch.exp(self.logprobs - self.old)


@dataclass(frozen=True)
class Surrogate:
    """`losses` of the tokens, to be minimised; `ratio` that they were clipped by.

    `low`, `high`: tokens without gradient because their ratio is beyond that bound.
    """

    losses: torch.Tensor
    ratio: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor


class Objective(Protocol):
    """The loss of tokens as one algorithm has it."""

    def __call__(self, tokens: Tokens) -> Surrogate:
        """Losses before weights, KL and entropy."""
        ...


def clipped(ratio: torch.Tensor, advantages: torch.Tensor, clip: Clip) -> Surrogate:
    """PPO's clipped surrogate, negated (arXiv 1707.06347, equation 7)."""
    bounded = torch.clamp(ratio, 1.0 - clip.low, 1.0 + clip.high)
    losses = -torch.minimum(ratio * advantages, bounded * advantages)
    at = ratio.detach()
    return Surrogate(
        losses,
        at,
        low=(at < 1.0 - clip.low) & (advantages < 0),
        high=(at > 1.0 + clip.high) & (advantages > 0),
    )


def sums(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The sum of each token's sequence, shape (N,); without gradient."""
    rows, inside = in_rows(values.detach(), counts)
    return rows.sum(1, keepdim=True).expand_as(rows)[inside]


def lengths(counts: torch.Tensor) -> torch.Tensor:
    """Tokens of each token's sequence, shape (N,)."""
    return counts.repeat_interleave(counts)


def in_rows(values: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(S, longest) with 0 behind the shorter ones, and where it holds `values`, in their order."""
    width = int(counts.max()) if len(counts) else 0
    inside = torch.arange(width, device=counts.device)[None] < counts[:, None]
    rows = values.new_zeros(inside.shape)
    rows[inside] = values
    return rows, inside
