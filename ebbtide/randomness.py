"""Every random decision as a pure function of who it concerns (protocol.md 10).

No generator with a state: the same arguments give the same bits on every machine, in any order
and after any restart. Specified byte by byte in docs/formats.md.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from ebbtide.wire import SampleKey

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def order_key(seed: int, epoch: int, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64-bit sort key of each data row in an epoch: SplitMix64 output number `row` + 1.

    The generator's state is the first 8 bytes (little-endian) of
    SHA-256("ebbtide order" | seed as int64 | epoch as int64), both little-endian.
    """
    name = b"ebbtide order" + struct.pack("<qq", seed, epoch)
    state = np.frombuffer(hashlib.sha256(name).digest()[:8], dtype="<u8")[0]
    return _mix(state + (rows + np.uint64(1)) * _GOLDEN)


def noise_key(seed: int, key: SampleKey) -> bytes:
    """16 bytes that name a sample's noise: neither job nor attempt nor dispatch change them.

    The first 16 bytes of SHA-256("ebbtide noise" | seed | step_issued | group | index | turn),
    each number as little-endian int64.
    """
    place = struct.pack("<qqqqq", seed, key.step_issued, key.group, key.index, key.turn)
    return hashlib.sha256(b"ebbtide noise" + place).digest()[:16]


def resume_seed(noise: bytes, start: int) -> int:
    """Seed in [0, 2**63) for an engine with per-request seeds, from token `start` on.

    Such an engine begins its own noise at position 0, so a moved sample must not use its first
    seed again. The first 8 bytes of SHA-256("ebbtide resume" | noise | start as int64), as a
    little-endian integer, without its lowest bit.
    """
    name = b"ebbtide resume" + noise + struct.pack("<q", start)
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014); arithmetic is modulo 2**64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
