"""An export byte by byte (docs/formats.md, section 7)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from ebbtide import wire
from ebbtide.errors import Corrupt
from ebbtide.wire import KvTicket, Wire

MAGIC, VERSION = b"EBKV", 1
BLOCK = 256 << 10
"""Bytes under one checksum: small enough that a block is hashed while the caches hold it."""
_PREFIX = struct.Struct("<4sHHIQ")
_CRC = struct.Struct("<I")
_ALIGN = 64
Bytes = NDArray[np.uint8]


class KvHeader(Wire, frozen=True):
    """What lies in an export. `until` is on the host's monotonic clock, in seconds.

    `sums`: XXH3-64 of each block of the body, little-endian; the last block may be shorter.
    """

    ticket: KvTicket
    until: float
    sums: bytes


class Frame(msgspec.Struct, frozen=True):
    """A header that was read, and where the body lies."""

    header: KvHeader
    start: int
    size: int


def body_start(ticket: KvTicket, size: int) -> int:
    """Offset of a body of `size` bytes."""
    return _start(len(_header(ticket, 0.0, bytes(8 * len(_blocks(size))))))


def write(into: Bytes, ticket: KvTicket, until: float, body: Bytes) -> None:
    """Fill `into` with the export; the header comes last."""
    start = body_start(ticket, len(body))
    sums = copy(into[start : start + len(body)], body)
    header = _header(ticket, until, sums)
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, len(header), len(body))
    head = prefix + _CRC.pack(zlib.crc32(prefix + header)) + header
    into[: len(head)] = np.frombuffer(head, dtype=np.uint8)


def read_frame(data: Bytes) -> Frame:
    """Read and check the header; raises Corrupt."""
    fixed = _PREFIX.size + _CRC.size
    if len(data) < fixed:
        raise Corrupt("an export is shorter than its header")
    prefix = data[: _PREFIX.size].tobytes()
    magic, version, _, length, size = _PREFIX.unpack(prefix)
    if (magic, version) != (MAGIC, VERSION):
        raise Corrupt("not an export of this version")
    header = data[fixed : fixed + length].tobytes()
    [crc] = _CRC.unpack(data[_PREFIX.size : fixed].tobytes())
    start = _start(length)
    if zlib.crc32(prefix + header) != crc or start + size > len(data):
        raise Corrupt("an export's header does not hold")
    try:
        return Frame(wire.decode(header, KvHeader), start, size)
    except msgspec.DecodeError as error:
        raise Corrupt(f"an export's header cannot be read: {error}") from None


def holds(body: Bytes, sums: bytes) -> bool:
    """Whether every block of `body` is as it was written."""
    found = [xxhash.xxh3_64_intdigest(body[block].data) for block in _blocks(len(body))]
    return np.array(found, dtype="<u8").tobytes() == sums


class Checker:
    """Verifies a body piece by piece, as it comes; pieces end where blocks do, or the body does."""

    def __init__(self, body: Bytes, sums: bytes) -> None:
        self._body = body
        self._wanted = np.frombuffer(sums, dtype="<u8")
        self._seen, self._held = 0, len(self._wanted) == len(_blocks(len(body)))

    def arrived(self, start: int, stop: int) -> None:
        """body[start:stop] is there, and everything before it."""
        assert start == self._seen, "in order"
        self._seen = stop
        if not self._held:
            return
        piece = self._body[start:stop]
        wanted = self._wanted[start // BLOCK :]
        for block, sum_ in zip(_cut(len(piece)), wanted, strict=False):
            self._held &= xxhash.xxh3_64_intdigest(piece[block].data) == int(sum_)

    @property
    def whole(self) -> bool:
        """All of it came, and every block holds."""
        return self._held and self._seen == len(self._body)


def copy(into: Bytes, source: Bytes) -> bytes:
    """Copy, and return the checksums of what is then in `into`."""
    sums = []
    for block in _blocks(len(source)):
        into[block] = source[block]
        sums.append(xxhash.xxh3_64_intdigest(into[block].data))
    return np.array(sums, dtype="<u8").tobytes()


def _blocks(size: int) -> list[slice]:
    return list(_cut(size))


def _cut(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def _header(ticket: KvTicket, until: float, sums: bytes) -> bytes:
    return wire.encode(KvHeader(ticket, until, sums))


def _start(header_length: int) -> int:
    end = _PREFIX.size + _CRC.size + header_length
    return -(-end // _ALIGN) * _ALIGN
