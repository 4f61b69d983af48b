"""Which row comes next: a shuffled order per epoch, and a cursor that never ends (pure).

The cursor counts the prompts issued since the job began; it is all that a checkpoint keeps of
the data's state. An epoch's end is not the training's end: the next epoch follows, in an order
of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebbtide.randomness import order_key


def order(seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    """The rows 0..n-1 in the order of `epoch`, shape (n,): sorted by `order_key`."""
    return np.argsort(order_key(seed, epoch, np.arange(n, dtype=np.uint64)), kind="stable")


class DataOrder:
    """The endless sequence of rows of a dataset of `n_rows`; shuffled by (seed, epoch) or not."""

    def __init__(self, *, n_rows: int, seed: int, shuffle: bool = True) -> None:
        assert n_rows > 0, "an empty dataset is refused when it is prepared"
        self._n_rows, self._seed, self._shuffle = n_rows, seed, shuffle
        self._epoch, self._rows = -1, np.empty(0, dtype=np.int64)

    def take(self, cursor: int, count: int) -> tuple[int, ...]:
        """Rows at positions [cursor, cursor + count), across as many epochs as it takes."""
        rows: list[int] = []
        while len(rows) < count:
            epoch, start = divmod(cursor + len(rows), self._n_rows)
            piece = self._order(epoch)[start : start + count - len(rows)]
            rows.extend(piece.tolist())
        return tuple(rows)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self._n_rows)
        if epoch != self._epoch:  # memory of the last answer, not state: it changes no result
            self._epoch, self._rows = epoch, order(self._seed, epoch, self._n_rows)
        return self._rows
