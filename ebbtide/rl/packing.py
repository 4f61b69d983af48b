"""How samples are laid out where several share a row, one after the other (pure).

Who calls it: the planner when it freezes a batch, the learner when it builds the rows. Padding is
then only what no sample fits into, so what counts is tokens, and ranks are balanced by those.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

_STEPS = 16
"""One micro-batch in so many more is tried while they do not fit."""


def first_fit(lengths: Sequence[int], width: int) -> list[tuple[int, int]]:
    """(row, first position) of each item in rows of `width`: the longest first, where it fits.

    No item may be longer than `width`. At most 11/9 of the fewest rows, and one more.
    """
    assert all(length <= width for length in lengths)
    filled: list[int] = []
    places = [(0, 0)] * len(lengths)
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((r for r, used in enumerate(filled) if used + lengths[i] <= width), len(filled))
        if row == len(filled):
            filled.append(0)
        places[i] = (row, filled[row])
        filled[row] += lengths[i]
    return places


def packed_size(lengths: Sequence[int]) -> int:
    """Positions that these items need, in rows as long as the longest of them."""
    width = max(lengths, default=0)
    return width * (1 + max((row for row, _ in first_fit(lengths, width)), default=-1))


def partition_packed(
    lengths: Sequence[int], *, ranks: int, limit: int
) -> tuple[list[tuple[int, int]], int]:
    """Place items: (rank, micro-batch) of each, and micro-batches per rank.

    As `ebbtide.rl.batching.partition`, for packed rows: micro-batches of at most `limit` positions
    (a longer sample has one of its own), hardly more than that needs, with about as many tokens
    each.
    """
    bins: list[list[int]] = []
    count = ranks * max(1, -(-sum(lengths) // (limit * ranks)))
    while lengths:
        bins = _balanced(lengths, min(count, len(lengths)))
        if count >= len(lengths) or all(_fits(lengths, items, limit) for items in bins):
            break
        count += ranks * max(1, count // (_STEPS * ranks))
    return _dealt(lengths, bins, ranks), -(-len(bins) // ranks)


def _balanced(lengths: Sequence[int], count: int) -> list[list[int]]:
    """The longest first, each to the lightest of `count` bins (LPT)."""
    bins: list[list[int]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        load, number = lightest[0]
        heapreplace(lightest, (load + lengths[i], number))
        bins[number].append(i)
    return bins


def _fits(lengths: Sequence[int], items: Sequence[int], limit: int) -> bool:
    return len(items) == 1 or packed_size([lengths[i] for i in items]) <= limit


def _dealt(
    lengths: Sequence[int], bins: Sequence[Sequence[int]], ranks: int
) -> list[tuple[int, int]]:
    """Bins to ranks, the heaviest first and to and fro, so that each index weighs alike."""
    ranked = sorted(bins, key=lambda items: (-sum(lengths[i] for i in items), items[0]))
    places = [(-1, -1)] * len(lengths)
    for number, items in enumerate(ranked):
        microbatch, turn = divmod(number, ranks)
        rank = turn if microbatch % 2 == 0 else ranks - 1 - turn
        for i in items:
            places[i] = (rank, microbatch)
    return places
