"""GSPO: the ratio is that of the whole answer, per token (arXiv 2507.18071, equations 7 and 14).

s = exp(mean over the answer of log p - log p_old). Every token gets the value s and the gradient
s * d log p of itself alone (the paper's GSPO-token, which has GSPO's gradient where all tokens of
an answer weigh alike, as they do here); so no gradient has to cross from token to token.
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
class Gspo:
    """`clip`: bounds of the answer's ratio; a thousandth of those for tokens."""

    clip: Clip

    def __call__(self, tokens: Tokens) -> Surrogate:
        """Losses of the tokens."""
        gap = tokens.logprobs - tokens.old
        mean = sums(gap, tokens.counts) / lengths(tokens.counts)
        ratio = torch.exp(mean + (tokens.logprobs - tokens.logprobs.detach()))
        return clipped(ratio, tokens.advantages, self.clip)
