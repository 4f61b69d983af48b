"""From logits to tokens: temperature, noise, log-probability of what was drawn."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ebbtide.engines.torch.noise import gumbel


class Noise(NamedTuple):
    """Which draws to make: per row a stream word, a position in it, and a temperature."""

    words: Tensor
    positions: Tensor
    temperature: Tensor


class Drawn(NamedTuple):
    """Tokens (int64) and their log-probabilities (float32), both of shape (n,)."""

    tokens: Tensor
    logprobs: Tensor


def draw(logits: Tensor, noise: Noise, *, greedy: bool) -> Drawn:
    """Draw one token a row from `logits` of shape (n, vocab) by the Gumbel-max trick.

    Log-probabilities are of the distribution drawn from, log_softmax(logits / temperature).
    A temperature of 0 takes the likeliest token, and reports its log-probability at 1.
    `greedy` says that every temperature is 0, so that no noise need be made.
    """
    hot = noise.temperature > 0
    divisor = torch.where(hot, noise.temperature, 1.0)
    logprobs = torch.log_softmax(logits.float() / divisor[:, None], dim=-1)
    scores = logprobs
    if not greedy:
        made = gumbel(noise.words, noise.positions, logits.shape[-1])
        scores = logprobs + torch.where(hot[:, None], made, 0.0)
    tokens = scores.argmax(dim=-1)
    return Drawn(tokens, logprobs.gather(1, tokens[:, None])[:, 0])
