"""Several samples in one row: siblings share their prompt, and rows are filled with what fits.

A tree is a trunk (the prompt) and branches (what follows it in each sample). A position attends to
its trunk and to what comes before it in its own branch, and it stands where it would stand in a
row of its own, so every answer gets exactly the numbers that it would get alone. What is saved is
the prompt, as often as it has siblings, and padding; what is paid is attention over a longer row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ebbtide.rl.packing import first_fit
from services.learner.core.samples import MicroBatch, Sample, pad

Ints = NDArray[np.int64]

PADDING = -1
"""Branch of what belongs to no sample."""
MAX_WIDTH = 4096
"""Positions of a row with several samples: its mask has the square of them."""
_TOKEN_PAIRS = 6
"""One token of a layer costs about as much as 6 * hidden size pairs of attention (24 d^2 : 4 d)."""


@dataclass(frozen=True)
class Tree:
    """One text, or several that begin alike. `branch`: 0 in the trunk, else the number of the answer, from 1.

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


@dataclass(frozen=True)
class Rows:
    """How samples become rows. `share`: siblings have one prompt; `fill`: rows hold several texts.

    `hidden`: the model's hidden size, by which sharing is weighed.
    """

    hidden: int = 1
    share: bool = False
    fill: bool = False

    def of(self, samples: Sequence[Sample]) -> MicroBatch:
        """One micro-batch like `pad`'s of the same samples, in fewer positions where that is less."""
        if not samples or not (self.share or self.fill):
            return pad(samples)
        rows = rows_of(samples, hidden=self.hidden) if self.share else [[s] for s in samples]
        trees = [tree(row) for row in rows]
        width = max(len(one.tokens) for one in trees)
        places = [(row, 0) for row in range(len(trees))]
        if self.fill and width <= MAX_WIDTH:
            places = first_fit([len(one.tokens) for one in trees], width)
        if 1 + max(row for row, _ in places) == len(samples):
            return pad(samples)
        return _laid(samples, trees, places, width)


ROW_EACH = Rows()
"""Every sample in a row of its own."""


def _laid(
    samples: Sequence[Sample],
    trees: Sequence[Tree],
    places: Sequence[tuple[int, int]],
    width: int,
) -> MicroBatch:
    """Each tree at its (row, first position). Branches get numbers that are the row's own."""
    shape = (1 + max(row for row, _ in places), width)
    tokens, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    branch, trunk = np.full(shape, PADDING), np.full(shape, PADDING)
    wheres: list[Ints] = []
    for one, (row, start) in zip(trees, places, strict=True):
        part = (row, slice(start, start + len(one.tokens)))
        number = int(branch[row].max()) + 1
        tokens[part], positions[part] = one.tokens, one.positions
        branch[part], trunk[part] = number + one.branch, number
        wheres += [row * width + start + where for where in one.where]
    return replace(
        pad(samples),
        tokens=tokens,
        where=np.concatenate(wheres),
        branch=branch,
        trunk=trunk,
        positions=positions,
    )
