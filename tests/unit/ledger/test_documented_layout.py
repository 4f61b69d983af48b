"""docs/formats.md describes the segment as it is: read here by nothing but that page."""

import struct
import zlib
from pathlib import Path

import msgspec

DATA = (Path(__file__).parents[2] / "golden" / "ledger-segment-v1.seg").read_bytes()


def test_the_header_is_as_documented() -> None:
    magic, version, flags, slot = struct.unpack_from("<4sHHQ", DATA, 0)
    assert (magic, version, flags, slot) == (b"EBLG", 1, 0, 7)
    assert DATA[16:32] == bytes(range(16))
    count, size, crc = struct.unpack_from("<IQI", DATA, 32)
    assert (count, size, crc) == (4, len(DATA) - 48, zlib.crc32(DATA[:44]))


def test_the_records_are_as_documented() -> None:
    at, tags = 48, []
    while at < len(DATA):
        n, crc = struct.unpack_from("<II", DATA, at)
        payload = DATA[at + 8 : at + 8 + n]
        assert crc == zlib.crc32(DATA[at : at + 4] + payload)
        tags.append(msgspec.msgpack.decode(payload)["type"])
        at += 8 + n
    assert tags == ["epoch", "accepted", "scored", "abandoned"]
