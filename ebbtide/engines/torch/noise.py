"""Gumbel noise as a function of (noise key, position, token id) and of nothing else.

A sample's draws therefore depend neither on its actor, its row, its neighbours nor on where it
was resumed (protocol.md 10). The generator is SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014) used as a counter: a key's stream at `position`
seeds a stream of its own, whose element `token id` is the draw. A key's own seed is its
`noise_word` (ebbtide.engines.samples).
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)


def random_words(words: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """64 random bits per token id: int64, shape (n, vocab); `words` and `positions` are (n,)."""
    seeds = _mix(words + (positions + 1) * _GOLDEN)
    steps = torch.arange(1, vocab + 1, device=words.device) * _GOLDEN
    return _mix(seeds[:, None] + steps)


def gumbel(words: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise, float32, shape (n, vocab).

    The uniform is taken near 0, where float32 is finest, so large values (which decide for
    unlikely tokens) keep all their bits.
    """
    uniform = _shift(random_words(words, positions, vocab), 1).float() * 2.0**-63
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift right: torch shifts signed integers arithmetically."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
