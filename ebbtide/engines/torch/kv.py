"""Keys and values of many sequences, one a row, behind transformers' cache interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
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


class Geometry(NamedTuple):
    """What the keys of one position are: `layers` pairs of (groups, dim) in `dtype`."""

    layers: int
    groups: int
    dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def layout(self) -> str:
        """Name of the bytes that `KvRows.export` makes (docs/formats.md)."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"rows1:{dtype}:l{self.layers}:h{self.groups}:d{self.dim}"

    def size(self, tokens: int) -> int:
        """Bytes of so many tokens."""
        return 2 * self.layers * self.groups * self.dim * self.dtype.itemsize * tokens


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

    @classmethod
    def over(cls, layers: list[tuple[Tensor, Tensor]]) -> KvRows:
        """Rows in storage that is there: (keys, values) of each layer, (rows, groups, width, d)."""
        rows, _, width, _ = layers[0][0].shape
        found = cls(rows, width)
        found._layers = layers
        return found

    @property
    def stored(self) -> list[Tensor]:
        """Keys and values of each layer, in turn."""
        return [stored for layer in self._layers for stored in layer]

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
        self._match(origin)
        for mine, theirs in zip(self._layers, origin._layers, strict=True):
            for target, source in zip(mine, theirs, strict=True):
                target[targets, :, :length] = source[sources, :, :length]

    def fork_row(self, origin: KvRows, target: int, source: int, length: int) -> None:
        """Copy the first `length` positions, and no more, of one row of `origin`."""
        self._match(origin)
        for mine, theirs in zip(self._layers, origin._layers, strict=True):
            for into, out_of in zip(mine, theirs, strict=True):
                into[target, :, :length] = out_of[source, :, :length]

    @property
    def geometry(self) -> Geometry | None:
        """Known once something was written; None if the layers differ from each other."""
        kinds = {(k.shape[1], k.shape[3], k.dtype, k.device) for pair in self._layers for k in pair}
        if len(kinds) != 1:
            return None
        groups, dim, dtype, device = kinds.pop()
        return Geometry(len(self._layers), groups, dim, dtype, device)

    def prepare(self, geometry: Geometry | None) -> None:
        """Make the storage that the first forward would make."""
        if geometry is None or self._layers:
            return
        layers, groups, dim, dtype, device = geometry
        like = torch.empty((1, groups, 1, dim), dtype=dtype, device=device)
        self._layers = [(self._storage(like), self._storage(like)) for _ in range(layers)]

    def export(self, row: int, length: int) -> memoryview:
        """The first `length` positions of `row`: [layer][key, value][group][position][dim]."""
        parts = [stored[row, :, :length] for layer in self._layers for stored in layer]
        whole = torch.stack(parts).cpu().reshape(-1)
        return whole.view(torch.uint8).numpy().data

    def load(self, row: int, data: memoryview, length: int) -> None:
        """Put the first `length` positions of an export, which may have more, into `row`."""
        geometry = self.geometry
        assert geometry is not None, "rows whose layers differ take no import"
        layers, groups, dim, dtype, device = geometry
        # A tensor must not share memory that may not be written; that would need a copy.
        bytes_ = np.require(np.frombuffer(data, dtype=np.uint8), requirements="W")
        whole = torch.from_numpy(bytes_).view(dtype).reshape(layers, 2, groups, -1, dim)
        for layer, parts in zip(self._layers, whole[:, :, :, :length].to(device), strict=True):
            for stored, part in zip(layer, parts, strict=True):
                stored[row, :, :length] = part

    def clear(self, rows: Tensor) -> None:
        """Zero `rows`: what was written there is not finite, and would pass through any mask."""
        for layer in self._layers:
            for stored in layer:
                stored[rows] = 0

    def _match(self, origin: KvRows) -> None:
        while len(self._layers) < len(origin._layers):
            keys, values = origin._layers[len(self._layers)]
            self._layers.append((self._storage(keys), self._storage(values)))

    def _storage(self, like: Tensor) -> Tensor:
        shape = (self.rows, like.shape[1], self.width, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _write(self, stored: Tensor, states: Tensor) -> Tensor:
        assert self.aim is not None, "the cache was not aimed"
        rows, positions, window, leading = self.aim
        stored[rows[:, None], :, positions] = states.transpose(1, 2)
        seen = stored[:, :, :window]
        # A recording takes len() for a constant, and a shape for what it is.
        return seen[: rows.shape[0]] if leading else seen.index_select(0, rows)
