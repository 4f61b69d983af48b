"""CISPO of MiniMax-M1 (arXiv 2506.13585, equations 4 and 5).

REINFORCE weighted by the ratio, which is cut off above and carries no gradient: a token beyond
the bound still learns, where PPO's clipping would silence it. There is no lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.learner.engine.objectives.tokens import Surrogate, Tokens


@dataclass(frozen=True)
class Cispo:
    """`high`: the weight is at most 1 + high."""

    high: float

    def __call__(self, tokens: Tokens) -> Surrogate:
        """Losses of the tokens."""
        ratio = tokens.ratio.detach()
        weight = ratio.clamp(max=1.0 + self.high)
        return Surrogate(
            losses=-weight * tokens.advantages * tokens.logprobs,
            ratio=ratio,
            low=torch.zeros_like(ratio, dtype=torch.bool),
            high=ratio > 1.0 + self.high,
        )
