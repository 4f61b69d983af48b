"""How samples are laid out where several share a row, one after the other (pure).

Who calls it: the planner when it freezes a batch, the learner when it builds the rows. Padding is
then only what no sample fits into, so what counts is tokens, and ranks are balanced by those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

WIDEST = 4096
"""Positions of a row with several texts: its mask has the square of them."""
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
    """Positions that these items need, in rows as long as the longest of them.

    With one longer than WIDEST each has a row of its own.
    """
    width = max(lengths, default=0)
    if width > WIDEST:
        return width * len(lengths)
    return width * (1 + max((row for row, _ in first_fit(lengths, width)), default=-1))


@dataclass(frozen=True)
class Kin:
    """Whose siblings items are: `group` of each, and the length of the `prompt` that they share."""

    group: Sequence[int]
    prompt: Sequence[int]


@dataclass(frozen=True)
class _Unit:
    """Items that stay together, and about what they cost, in tokens."""

    items: Sequence[int]
    weight: int


def partition_packed(
    lengths: Sequence[int], *, ranks: int, limit: int, kin: Kin | None = None
) -> tuple[list[tuple[int, int]], int]:
    """Place items: (rank, micro-batch) of each, and micro-batches per rank.

    As `ebbtide.rl.batching.partition`, for packed rows: micro-batches of at most `limit` positions
    (a longer sample has one of its own), hardly more than that needs, with about as many tokens
    each. With `kin` siblings go together as far as balance allows, because their prompt is then
    computed once; `limit` holds also if the learner computes it for each.
    """
    bins: list[list[int]] = []
    count = ranks * max(1, -(-sum(lengths) // (limit * ranks)))
    units = _units(lengths, kin, limit=limit, count=count)
    while units:
        bins = _balanced(units, min(count, len(units)))
        if count >= len(units) or all(_fits(lengths, items, limit) for items in bins):
            break
        count += ranks * max(1, count // (_STEPS * ranks))
    return _dealt(lengths, bins, ranks), -(-len(bins) // ranks)


def _units(lengths: Sequence[int], kin: Kin | None, *, limit: int, count: int) -> list[_Unit]:
    """Siblings in units of at most half a micro-batch, so that each unit fits and bins weigh alike.

    Any two filled rows together hold more than one row's width, so items need less than twice
    their sum: a unit of at most half of `limit` fits, whatever its lengths.
    """
    singles = [_Unit([i], length) for i, length in enumerate(lengths)]
    if kin is None:
        return singles
    most = min(limit, sum(lengths) // max(1, count)) // 2
    units: list[_Unit] = []
    open_units: dict[int, tuple[list[int], int]] = {}
    for i in sorted(range(len(lengths)), key=lambda i: (kin.group[i], -lengths[i], i)):
        items, used = open_units.get(kin.group[i], ([], 0))
        if items and (used + lengths[i] > most or lengths[items[0]] > WIDEST):
            units.append(_unit(items, lengths, kin))
            items, used = [], 0
        open_units[kin.group[i]] = ([*items, i], used + lengths[i])
    return [*units, *(_unit(items, lengths, kin) for items, _ in open_units.values())]


def _unit(items: Sequence[int], lengths: Sequence[int], kin: Kin) -> _Unit:
    saved = (len(items) - 1) * kin.prompt[items[0]]
    return _Unit(items, sum(lengths[i] for i in items) - saved)


def _balanced(units: Sequence[_Unit], count: int) -> list[list[int]]:
    """The heaviest first, each to the lightest of `count` bins (LPT)."""
    bins: list[list[int]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for unit in sorted(units, key=lambda unit: (-unit.weight, unit.items[0])):
        load, number = lightest[0]
        heapreplace(lightest, (load + unit.weight, number))
        bins[number] += unit.items
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
