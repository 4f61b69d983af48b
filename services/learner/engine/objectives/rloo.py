"""RLOO: an answer is one action (Back to Basics, arXiv 2402.14740, section 3).

Its ratio is the product over its tokens, clipped as PPO's; its loss is that of the whole answer.
Spread over its n tokens, each weighed 1/n by the sequence mean: value r, gradient n r d log p.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.learner.engine.objectives.tokens import (
    Clip,
    Surrogate,
    Tokens,
    clipped,
    lengths,
    sums,
)


@dataclass(frozen=True)
class Rloo:
    """`clip`: bounds of the whole answer's ratio."""

    clip: Clip

    def __call__(self, tokens: Tokens) -> Surrogate:
        """Losses of the tokens."""
        whole = sums(tokens.logprobs - tokens.old, tokens.counts)
        own = tokens.logprobs - tokens.logprobs.detach()
        ratio = torch.exp(whole + lengths(tokens.counts) * own)
        return clipped(ratio, tokens.advantages, self.clip)
