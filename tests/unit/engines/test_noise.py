"""The noise is Gumbel, and a function of key, position and token id alone."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.engines.samples import noise_word
from ebbtide.engines.torch.noise import gumbel, random_words

MASK = (1 << 64) - 1
words = st.integers(-(1 << 63), (1 << 63) - 1)


def splitmix(state: int) -> int:
    """The published generator's output function, on Python's integers."""
    z = state & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def expected(word: int, position: int, token: int) -> int:
    golden = 0x9E3779B97F4A7C15
    return splitmix(splitmix(word + (position + 1) * golden) + (token + 1) * golden)


@given(words, st.integers(0, 1 << 20), st.integers(0, 30))
def test_the_generator_is_splitmix64(word: int, position: int, token: int) -> None:
    made = random_words(torch.tensor([word]), torch.tensor([position]), 31)
    assert int(made[0, token]) & MASK == expected(word, position, token)


def test_the_first_published_outputs_appear() -> None:
    # Seed 0 of the reference implementation in Java and C.
    assert splitmix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


def test_a_noise_key_gives_one_word() -> None:
    assert noise_word(b"ebbtide") == 1525249653186236413
    assert noise_word(b"ebbtidf") != noise_word(b"ebbtide")


@given(st.lists(words, min_size=1, max_size=9), st.integers(0, 8), st.integers(1, 90))
def test_a_row_has_the_same_bits_in_any_batch(many: list[int], pick: int, vocab: int) -> None:
    row = pick % len(many)
    positions = torch.arange(len(many))
    batch = gumbel(torch.tensor(many), positions, 90)
    alone = gumbel(torch.tensor(many[row : row + 1]), positions[row : row + 1], vocab)
    assert torch.equal(batch[row, :vocab], alone[0])


def test_the_noise_is_standard_gumbel() -> None:
    drawn = gumbel(torch.arange(400), torch.arange(400), 1000).double().numpy().ravel()
    assert abs(drawn.mean() - np.euler_gamma) < 0.01
    assert abs(drawn.var() - math.pi**2 / 6) < 0.02
    # The distribution function at the noise is uniform: compare all its deciles.
    deciles = np.quantile(np.exp(-np.exp(-drawn)), np.arange(0.1, 1, 0.1))
    assert np.abs(deciles - np.arange(0.1, 1, 0.1)).max() < 0.005


def test_neighbouring_positions_and_tokens_are_uncorrelated() -> None:
    drawn = gumbel(torch.zeros(1000, dtype=torch.int64), torch.arange(1000), 200)
    centred = drawn - drawn.mean()
    scale = float(centred.square().mean())
    for other in (centred.roll(1, 0), centred.roll(1, 1)):
        assert abs(float((centred * other).mean())) < 0.01 * scale
