"""Samples of one prompt as one row: the prompt is computed once, its answers branch off it.

A row is a trunk (the prompt) and branches (what follows it in each sample). A position attends to
the trunk and to what comes before it in its own branch, and it stands where it would stand in a
row of its own, so every answer gets exactly the numbers that it would get alone. What is saved is
the prompt, as often as it has siblings; what is paid is attention over a longer row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from services.learner.core.samples import MicroBatch, Sample, pad

Ints = NDArray[np.int64]

PADDING = -1
"""Branch of what belongs to no sample."""
MAX_WIDTH = 4096
"""Positions of a shared row: its mask has the square of them."""
_TOKEN_PAIRS = 6
"""One token of a layer costs about as much as 6 * hidden size pairs of attention (24 d^2 : 4 d)."""


@dataclass(frozen=True)
class Tree:
    """One row. `branch`: 0 in the trunk, else the number of the answer, from 1.

    `positions`: of each token in its own text. `where`: for each sample, the indices of the hidden
    states that predict its chosen tokens.
    """

    tokens: Ints
    branch: Ints
    positions: Ints
    where: tuple[Ints, ...]


def rows_of(samples: Sequence[Sample], *, hidden: int) -> list[list[Sample]]:
    """Split `samples`, in their order, into rows: a sibling joins where that is cheaper.

    `hidden`: the model's hidden size, by which a token's cost compares with a pair's.
    """
    rows: list[list[Sample]] = []
    width = 0
    for sample in samples:
        whole = len(sample.tokens)
        rest = whole - sample.prompt
        joins = bool(rows) and _siblings(rows[-1][0], sample) and width + rest <= MAX_WIDTH
        if joins and _cost(width + rest, hidden) - _cost(width, hidden) < _cost(whole, hidden):
            rows[-1].append(sample)
            width += rest
        else:
            rows.append([sample])
            width = whole
    return rows


def tree(samples: Sequence[Sample]) -> Tree:
    """The row of `samples`, which have one prompt; of a single sample it is its text."""
    first = samples[0]
    trunk = first.prompt if len(samples) > 1 else len(first.tokens)
    pieces = [first.tokens[:trunk], *(s.tokens[trunk:] for s in samples)]
    starts = np.cumsum([0, *map(len, pieces)])[1:-1]
    return Tree(
        tokens=np.concatenate(pieces),
        branch=np.repeat(np.arange(len(pieces)), [len(p) for p in pieces]),
        positions=np.concatenate(
            [np.arange(trunk), *(np.arange(trunk, len(s.tokens)) for s in samples)]
        ),
        where=tuple(
            _predictors(s.chosen, trunk, int(start))
            for s, start in zip(samples, starts, strict=True)
        ),
    )


def _predictors(chosen: Ints, trunk: int, start: int) -> Ints:
    """Where the states lie that predict `chosen`; a branch's first is predicted by the trunk."""
    before = chosen - 1
    return np.where(before < trunk, before, before - trunk + start)


def _siblings(a: Sample, b: Sample) -> bool:
    return 0 < a.prompt == b.prompt and np.array_equal(a.tokens[: a.prompt], b.tokens[: b.prompt])


def _cost(width: int, hidden: int) -> float:
    return width + width * width / (_TOKEN_PAIRS * hidden)


def pack(samples: Sequence[Sample], *, hidden: int) -> MicroBatch:
    """One micro-batch like `pad`'s, siblings in shared rows where that is cheaper."""
    trees = [tree(row) for row in rows_of(samples, hidden=hidden)]
    if len(trees) == len(samples):
        return pad(samples)
    width = max(len(one.tokens) for one in trees)
    wheres = [at * width + w for at, one in enumerate(trees) for w in one.where]
    return replace(
        pad(samples),
        tokens=_stack([one.tokens for one in trees], width, 0),
        where=np.concatenate(wheres),
        branch=_stack([one.branch for one in trees], width, PADDING),
        positions=_stack([one.positions for one in trees], width, 0),
    )


def _stack(rows: Sequence[Ints], width: int, fill: int) -> Ints:
    stacked = np.full((len(rows), width), fill, dtype=np.int64)
    for at, row in enumerate(rows):
        stacked[at, : len(row)] = row
    return stacked
