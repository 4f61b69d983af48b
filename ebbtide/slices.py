"""What samples are told apart by: buckets of length, and figures of samples that are alike (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

import msgspec

from ebbtide.figures import Figures
from ebbtide.wire import Accepted, Scored, Value

_ENDS = (64, 256, 1024, 4096, 16384)
BUCKETS = (f"1-{_ENDS[0]}", *(f"{a + 1}-{b}" for a, b in pairwise(_ENDS)), f"{_ENDS[-1] + 1}+")
"""Names of the buckets, shortest first."""
OTHER = "other"
DIGITS = 12
"""Of a digest, where it names a version."""


def bucket(tokens: int) -> str:
    """The bucket of a response of `tokens` tokens."""
    return BUCKETS[sum(tokens > end for end in _ENDS)]


SIGNS = ("negative", "zero", "positive")


def sign(reward: float | None) -> str:
    """Of a reward; empty: there is none."""
    return "" if reward is None else SIGNS[(reward > 0) - (reward < 0) + 1]


AGES = ("0", "1", "2", "3+")
"""Versions between the policy that drew a sample and the one that the step began with."""


def age(drawn_by: int, began_with: int) -> str:
    """The age of a sample, by the numbers of both policies."""
    return AGES[min(max(began_with - drawn_by, 0), len(AGES) - 1)]


class Seen(msgspec.Struct, frozen=True):
    """One accepted sample. `reward`: None until it has a value."""

    tokens: int
    finish: str
    reward: float | None
    fault: str = ""


def seen_of(accepted: Accepted, scored: Scored | None) -> Seen:
    """From what the ledger says of the sample."""
    score = scored.score if scored else None
    if isinstance(score, Value):
        return Seen(accepted.n_tokens, accepted.finish, score.total, score.fault)
    return Seen(accepted.n_tokens, accepted.finish, None)


def figures_of(seen: Sequence[Seen], *, threshold: float) -> Figures:
    """Counts and means of some samples, at least one; they pass at the reward `threshold`."""
    rewards = [one.reward for one in seen if one.reward is not None]
    return Figures(
        samples=len(seen),
        valued=len(rewards),
        reward=fmean(rewards) if rewards else None,
        reward_std=pstdev(rewards) if rewards else None,
        passed=sum(reward >= threshold for reward in rewards),
        tokens=fmean(one.tokens for one in seen),
        truncated=sum(one.finish == "length" for one in seen),
        faulty=sum(bool(one.fault) for one in seen),
    )


def rarest_as_other(values: Iterable[str], most: int) -> dict[str, str]:
    """By value its name: its own for the `most` most frequent ones, OTHER for the rest."""
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    return {value: value if place < most else OTHER for place, value in enumerate(ranked)}
