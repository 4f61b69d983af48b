"""The cheapest one-to-one matching of rows to columns (the Hungarian method, exact)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


def cheapest_matching(costs: Floats) -> Ints:
    """The column of each row, so that the sum of `costs` (rows, columns) is smallest.

    Rows must not outnumber columns; costs must be finite. O(rows^2 x columns).
    """
    rows, columns = costs.shape
    assert rows <= columns, "each row needs a column of its own"
    matching = _Matching(costs)
    for row in range(rows):
        matching.add(row)
    return matching.column_of_row()


class _Matching:
    """Shortest augmenting paths over reduced costs, one row at a time.

    Invariant: cost - of_row - of_column is nowhere negative, and 0 on matched pairs.
    """

    def __init__(self, costs: Floats) -> None:
        rows, columns = costs.shape
        self._costs = costs
        self._of_row, self._of_column = np.zeros(rows), np.zeros(columns)
        self._owner = np.full(columns, -1)

    def add(self, row: int) -> None:
        """Give `row` a column, moving others along the cheapest path."""
        columns = len(self._owner)
        distance, before = np.full(columns, np.inf), np.full(columns, -1)
        open_ = np.ones(columns, bool)
        at, last, travelled = row, -1, 0.0
        while True:
            reached = travelled + self._costs[at] - self._of_row[at] - self._of_column
            better = open_ & (reached < distance)
            distance[better], before[better] = reached[better], last
            last = int(np.where(open_, distance, np.inf).argmin())
            travelled = float(distance[last])
            open_[last] = False
            if self._owner[last] < 0:
                break
            at = int(self._owner[last])
        self._shift(row, np.flatnonzero(~open_ & (self._owner >= 0)), distance, travelled)
        self._hand_on(row, last, before)

    def column_of_row(self) -> Ints:
        """(rows,) of the rows that were added."""
        column = np.full(len(self._of_row), -1)
        taken = np.flatnonzero(self._owner >= 0)
        column[self._owner[taken]] = taken
        return column

    def _shift(self, row: int, visited: Ints, distance: Floats, travelled: float) -> None:
        step = travelled - distance[visited]
        self._of_row[row] += travelled
        self._of_row[self._owner[visited]] += step
        self._of_column[visited] -= step

    def _hand_on(self, row: int, last: int, before: Ints) -> None:
        while last >= 0:
            previous = int(before[last])
            self._owner[last] = row if previous < 0 else self._owner[previous]
            last = previous
