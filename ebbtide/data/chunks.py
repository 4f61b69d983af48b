"""How prepared rows lie in the blob store: chunks of rows, and one index (pure).

An index at `index_path(digest)` makes a dataset whole: chunks without it are an unfinished
preparation and are written again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide import paths
from ebbtide.wire import DatasetIndex, PromptRef, PromptRow, decode, encode

CHUNK_ROWS = 256


def index_path(digest: str) -> str:
    """Where the index of dataset `digest` lies."""
    return f"{paths.dataset(digest)}index.msgpack"


def chunk_path(digest: str, n: int) -> str:
    """Where chunk `n` of dataset `digest` lies."""
    return f"{paths.dataset(digest)}chunks/{n:06d}.msgpack"


def encode_rows(rows: Sequence[PromptRow]) -> bytes:
    """One chunk's content."""
    return encode(tuple(rows))


def decode_rows(data: bytes) -> tuple[PromptRow, ...]:
    """Inverse of `encode_rows`."""
    return decode(data, tuple[PromptRow, ...])


def row_ref(index: DatasetIndex, row: int) -> PromptRef:
    """Where row `row` (0 .. n_rows - 1) of a prepared dataset is read."""
    chunk, place = divmod(row, index.chunk_rows)
    return PromptRef(chunk=index.chunks[chunk], row=place)
