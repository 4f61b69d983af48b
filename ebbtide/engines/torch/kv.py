"""Keys and values of many sequences, one a row, behind transformers' cache interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache


class Aim(NamedTuple):
    """Where one forward writes, and what it reads.

    `rows` (n,) and `positions` (n, t) say where the new keys go. Rows attend to positions
    [0, window). `leading` says that `rows` are 0..n-1, which can be read without a copy.
    """

    rows: Tensor
    positions: Tensor
    window: int
    leading: bool


class KvRows(Cache):
    """`rows` sequences of at most `width` tokens each; storage is made when first written.

    Aim it, then pass it to the model as `past_key_values`. Positions that were not written
    hold zeros or stale values, always finite: the mask keeps them out of every sum exactly.
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(layers=[])
        self.rows = rows
        self.width = width
        self.aim: Aim | None = None
        self._layers: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new (n, groups, t, d) states; return all that this forward may see."""
        while len(self._layers) <= layer_idx:
            self._layers.append((self._storage(key_states), self._storage(value_states)))
        keys, values = self._layers[layer_idx]
        return self._write(keys, key_states), self._write(values, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Unknown to the model: positions and mask are always given."""
        return 0

    def move(self, targets: Tensor, sources: Tensor, length: int) -> None:
        """Copy the first `length` positions of rows `sources` over rows `targets`."""
        self.fork(self, targets, sources, length)

    def fork(self, origin: KvRows, targets: Tensor, sources: Tensor, length: int) -> None:
        """Copy the first `length` positions of `origin`'s rows into rows `targets`."""
        while len(self._layers) < len(origin._layers):
            keys, values = origin._layers[len(self._layers)]
            self._layers.append((self._storage(keys), self._storage(values)))
        for mine, theirs in zip(self._layers, origin._layers, strict=True):
            for target, source in zip(mine, theirs, strict=True):
                target[targets, :, :length] = source[sources, :, :length]

    def clear(self, rows: Tensor) -> None:
        """Zero `rows`: what was written there is not finite, and would pass through any mask."""
        for layer in self._layers:
            for stored in layer:
                stored[rows] = 0

    def _storage(self, like: Tensor) -> Tensor:
        shape = (self.rows, like.shape[1], self.width, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _write(self, stored: Tensor, states: Tensor) -> Tensor:
        assert self.aim is not None, "the cache was not aimed"
        rows, positions, window, leading = self.aim
        stored[rows[:, None], :, positions] = states.transpose(1, 2)
        seen = stored[:, :, :window]
        return seen[: len(rows)] if leading else seen.index_select(0, rows)
