"""What is kept per prompt: a few numbers each, of a bounded number of prompts (pure).

Memory per prompt: its row in the index (about 110 bytes) and its id (about 50 bytes and the id's
length), and 4 bytes a column; about 200 MB for a million prompts with ids of 20 characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray


class Rows(msgspec.Struct, frozen=True):
    """A history on the wire: ids in order of arrival, then its columns, little-endian."""

    ids: tuple[str, ...]
    seen: bytes
    columns: tuple[bytes, ...]


class History:
    """Float32 columns by prompt id; the least recently seen make room beyond `capacity`."""

    def __init__(self, columns: int, capacity: int) -> None:
        self._index: dict[str, int] = {}
        self._seen = np.zeros(0, dtype="<i4")
        self._values = np.zeros((columns, 0), dtype="<f4")
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._index)

    def find(self, ids: Sequence[str]) -> NDArray[np.intp]:
        """(m,) slots of these prompts, -1 where a prompt is new."""
        get = self._index.get
        return np.array([get(name, -1) for name in ids], dtype=np.intp)

    def read(self, slots: NDArray[np.intp], column: int, default: float) -> NDArray[np.float64]:
        """(m,) values of one column, `default` where a slot is -1."""
        known = slots >= 0
        values = np.full(len(slots), default, dtype=np.float64)
        values[known] = self._values[column, slots[known]]
        return values

    def write(self, ids: Sequence[str], values: NDArray[np.float64], step: int) -> None:
        """Set all columns (columns, m) of m distinct prompts; new ones are added."""
        index = self._index
        slots = [index.setdefault(name, len(index)) for name in ids]
        self._grow(len(index))
        self._values[:, slots] = values
        self._seen[slots] = step
        if len(index) > self._capacity:
            self._forget()

    def dump(self) -> Rows:
        used = len(self._index)
        columns = tuple(column[:used].tobytes() for column in self._values)
        return Rows(tuple(self._index), self._seen[:used].tobytes(), columns)

    def load(self, rows: Rows) -> None:
        assert len(rows.columns) == len(self._values), "as many columns as were dumped"
        self._index = {name: slot for slot, name in enumerate(rows.ids)}
        self._seen = np.frombuffer(rows.seen, dtype="<i4").copy()
        self._values = np.stack([np.frombuffer(c, dtype="<f4") for c in rows.columns])

    def _grow(self, needed: int) -> None:
        have = len(self._seen)
        if needed > have:
            more = max(needed - have, have // 4)
            self._seen = np.pad(self._seen, (0, more))
            self._values = np.pad(self._values, ((0, 0), (0, more)))

    def _forget(self) -> None:
        """Keep the nine tenths of the capacity seen last, in their order of arrival."""
        used = len(self._index)
        latest = np.argsort(-self._seen[:used].astype(np.int64), kind="stable")
        keep = np.sort(latest[: max(self._capacity * 9 // 10, 1)])
        ids = list(self._index)
        self._index = {ids[old]: slot for slot, old in enumerate(keep.tolist())}
        self._seen = self._seen[keep]
        self._values = self._values[:, keep]
