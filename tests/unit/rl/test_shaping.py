"""Penalties on length, on numbers that can be worked out."""

from __future__ import annotations

import pytest

from ebbtide.rl.shaping import penalty_of, shaped
from ebbtide.spec import LengthPenalty, LinearLength, RelativeLength, SoftOverlong

OVERLONG = SoftOverlong(type="soft-overlong", buffer_share=0.25)


def after(values: list[float], lengths: list[int], penalty: LengthPenalty | None) -> list[float]:
    found = shaped(values, lengths, limit=100, penalty=penalty_of(penalty))
    return [round(value, 6) for value in found]


def test_without_a_penalty_rewards_stay() -> None:
    assert after([1.0, 0.0], [10, 100], None) == [1.0, 0.0]


def test_overlong_answers_lose_up_to_one_within_the_buffer() -> None:
    assert after([1.0] * 4, [10, 75, 80, 100], OVERLONG) == [1.0, 1.0, 0.8, 0.0]


def test_a_linear_penalty_counts_every_token() -> None:
    assert after([1.0, 0.0], [50, 100], LinearLength(type="linear", weight=0.2)) == [0.9, -0.2]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.5, 1.0, 0.5]),
        ([0.0, 1.0, 0.0], [0.0, 1.0, -0.5]),  # a wrong answer gains nothing by being short
    ],
)
def test_a_relative_penalty_is_within_the_group(values: list[float], expected: list[float]) -> None:
    assert after(values, [10, 20, 30], RelativeLength(type="relative")) == expected


def test_equal_lengths_are_neither_short_nor_long() -> None:
    assert after([1.0, 0.0], [7, 7], RelativeLength(type="relative")) == [1.0, 0.0]
