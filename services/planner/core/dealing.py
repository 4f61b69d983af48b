"""From the recorded layout of a step to queues: which share goes to which actor (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ebbtide.wire import Decided, unpack_ints
from services.planner.core.samples import WAITING, OpenStep

Share = list[int]
"""Sample numbers, in the order in which they are to be handed out."""


def shares_of(step: OpenStep, decided: Decided, expected: Sequence[float]) -> list[Share]:
    """What waits of each share, heaviest share first: the longest group first, groups together.

    `expected` (samples,): tokens. The longest answers must begin first, whatever else waits.
    """
    share_of = unpack_ints(decided.share_of).tolist()
    shares: list[Share] = [[] for _ in range(decided.shares)]
    for sample, share in enumerate(share_of):
        if step.states[sample] == WAITING:
            shares[share].append(sample)
    longest = _by_group(step, expected)
    for share in shares:
        share.sort(key=lambda i: (-longest[step.group_of[i]], step.group_of[i], i))
    return shares


def seat(
    step: OpenStep,
    decided: Decided,
    shares: Sequence[Share],
    weights: Sequence[float],
    names: Sequence[str],
) -> tuple[dict[str, Share], list[Share]]:
    """A share for each of `names` that can have one, and those that nobody has yet.

    Who already runs samples of a share goes on with it; else the heaviest goes first, so that
    what is left for actors still to come is the lightest.
    """
    ranked = sorted(range(len(shares)), key=lambda share: -weights[share])
    taken = _held(step, decided, names)
    free = [share for share in ranked if share not in taken.values()]
    for name in names:
        if name not in taken and free:
            taken[name] = free.pop(0)
    seated = {name: shares[taken[name]] if name in taken else [] for name in names}
    return seated, [shares[share] for share in free if shares[share]]


def weights_of(decided: Decided, expected: Sequence[float], slots: int) -> list[float]:
    """How long each share takes, in tokens one after the other: its longest, or its sum by slots."""
    share_of, tokens = unpack_ints(decided.share_of), np.asarray(expected, float)
    sums = np.bincount(share_of, weights=tokens, minlength=decided.shares) / max(slots, 1)
    longest = np.zeros(decided.shares)
    np.maximum.at(longest, share_of, tokens)
    weights: list[float] = np.maximum(sums, longest).tolist()
    return weights


def _held(step: OpenStep, decided: Decided, names: Sequence[str]) -> dict[str, int]:
    """For a planner that takes over: the share of which each actor has had the most."""
    share_of = unpack_ints(decided.share_of).tolist()
    had = Counter((step.actors[i], share) for i, share in enumerate(share_of) if step.codes[i])
    taken: dict[str, int] = {}
    for (name, share), _ in had.most_common():
        if name in names and name not in taken and share not in taken.values():
            taken[name] = share
    return taken


def _by_group(step: OpenStep, expected: Sequence[float]) -> list[float]:
    longest = [0.0] * len(step.plan.groups)
    for sample, group in enumerate(step.group_of):
        longest[group] = max(longest[group], expected[sample])
    return longest
