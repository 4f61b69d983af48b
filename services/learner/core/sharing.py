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

from ebbtide.rl.packing import WIDEST, first_fit
from services.learner.core.samples import MicroBatch, Sample, pad

Ints = NDArray[np.int64]

PADDING = -1
"""Branch of what belongs to no sample."""
_TOKEN_PAIRS = 6
"""One token of a layer costs about as much as 6 * hidden size pairs of attention (24 d^2 : 4 d)."""
_WIDER = (1.0, 1.25, 1.5, 2.0, 4.0, 8.0, 64.0)
"""Widths of shared rows that are weighed, of the longest text alone."""


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


def rows_of(samples: Sequence[Sample], *, hidden: int, widest: int = WIDEST) -> list[list[Sample]]:
    """Split `samples`, in their order, into rows: a sibling joins where that is cheaper.

    `hidden`: the model's hidden size, by which a token's cost compares with a pair's. No row
    grows beyond `widest`.
    """
    rows: list[list[Sample]] = []
    width = 0
    for sample in samples:
        whole = len(sample.tokens)
        rest = whole - sample.prompt
        joins = bool(rows) and _siblings(rows[-1][0], sample) and width + rest <= widest
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


def _cost(width: int, hidden: int, *, masked: bool = True) -> float:
    """Of a row, in tokens. Without a mask the half of all pairs that lies ahead is left out."""
    pairs = width * width if masked else width * width / 2
    return width + pairs / (_TOKEN_PAIRS * hidden)


@dataclass(frozen=True)
class _Layout:
    """Trees of `groups`, each at its (row, first position) in rows of `width`.

    Their tokens are put together only once a layout is chosen: most are weighed for nothing.
    """

    groups: Sequence[Sequence[Sample]]
    places: Sequence[tuple[int, int]]
    width: int

    @property
    def rows(self) -> int:
        return 1 + max(row for row, _ in self.places)

    @property
    def masked(self) -> bool:
        """Whether any row holds more than one text."""
        return self.rows < sum(map(len, self.groups))

    @property
    def size(self) -> int:
        return self.rows * self.width

    def cost(self, hidden: int) -> float:
        return self.rows * _cost(self.width, hidden, masked=self.masked)


def _apart(samples: Sequence[Sample]) -> _Layout:
    groups = [[sample] for sample in samples]
    return _Layout(groups, [(row, 0) for row in range(len(groups))], max(map(_length, groups)))


def _filled(groups: Sequence[Sequence[Sample]]) -> _Layout:
    lengths = [_length(group) for group in groups]
    return _Layout(groups, first_fit(lengths, max(lengths)), max(lengths))


def _length(group: Sequence[Sample]) -> int:
    """Tokens of the group's tree."""
    trunk = group[0].prompt
    return trunk + sum(len(sample.tokens) - trunk for sample in group)


@dataclass(frozen=True)
class Rows:
    """How samples become rows. `share`: siblings have one prompt; `fill`: rows hold several texts.

    `hidden`: the model's hidden size, by which sharing is weighed.
    """

    hidden: int = 1
    share: bool = False
    fill: bool = False

    def of(self, samples: Sequence[Sample]) -> MicroBatch:
        """One micro-batch like `pad`'s of the same samples, never of more positions than planned.

        Planned are filled rows with `fill`, else rows apart. Siblings share where that is cheaper
        for the micro-batch as a whole: a row that grew by a sibling would otherwise make padding
        of all the others, so what shares is filled too.
        """
        if not samples or not (self.share or self.fill):
            return pad(samples)
        laid = self._cheapest(samples)
        return _laid(samples, laid) if laid.masked else pad(samples)

    def _cheapest(self, samples: Sequence[Sample]) -> _Layout:
        planned = _apart(samples)
        if planned.width > WIDEST:
            return planned
        if self.fill:
            planned = _filled([[sample] for sample in samples])
        if not self.share:
            return planned
        tried = [self._shared(samples, int(planned.width * wider)) for wider in _WIDER]
        kept = [laid for laid in tried if laid.size <= planned.size]
        return min([planned, *kept], key=lambda laid: laid.cost(self.hidden))

    def _shared(self, samples: Sequence[Sample], widest: int) -> _Layout:
        return _filled(rows_of(samples, hidden=self.hidden, widest=min(widest, WIDEST)))


ROW_EACH = Rows()
"""Every sample in a row of its own."""


def _laid(samples: Sequence[Sample], laid: _Layout) -> MicroBatch:
    """Branches get numbers that are the row's own."""
    shape, width = (laid.rows, laid.width), laid.width
    tokens, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    branch, trunk = np.full(shape, PADDING), np.full(shape, PADDING)
    wheres: list[Ints] = []
    for one, (row, start) in zip(map(tree, laid.groups), laid.places, strict=True):
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
