"""Which rows hold the keys and values of which beginnings of texts, by whole blocks of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Text = NDArray[np.int32]


@dataclass(eq=False)
class _Node:
    """A block after its predecessors. `rows` hold it; the first added comes first."""

    children: dict[bytes, _Node] = field(default_factory=dict)
    rows: dict[int, None] = field(default_factory=dict)


class BlockTrie:
    """Rows by the blocks of `block` tokens with which their texts begin."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._root = _Node()
        self._held: dict[int, list[bytes]] = {}

    def add(self, row: int, text: Text) -> None:
        """`row` holds `text`, whatever it held before."""
        self.remove(row)
        node, blocks = self._root, list(self._blocks(text))
        for block in blocks:
            node = node.children.setdefault(block, _Node())
            node.rows[row] = None
        self._held[row] = blocks

    def remove(self, row: int) -> None:
        """`row` holds nothing any more; what no other row has is forgotten."""
        node = self._root
        for block in self._held.pop(row, ()):
            child = node.children[block]
            del child.rows[row]
            if not child.rows:
                # All below it was this row's alone.
                del node.children[block]
                return
            node = child

    def longest(self, text: Text) -> tuple[int, int]:
        """The oldest row that begins as `text` does, and for how many tokens; else (-1, 0).

        The oldest, so that texts which come together depend on one, not each on the one before.
        """
        node, found = self._root, 0
        for block in self._blocks(text):
            if block not in node.children:
                break
            node, found = node.children[block], found + self._block
        return (next(iter(node.rows)), found) if found else (-1, 0)

    def _blocks(self, text: Text) -> Iterator[bytes]:
        for end in range(self._block, len(text) + 1, self._block):
            yield text[end - self._block : end].tobytes()
