"""What all messages share: the base, the encoding, packed arrays, digests."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all messages: immutable, and an unknown field is an error, not a silence."""


def encode(message: Any) -> bytes:
    """Return `message` as msgpack; the same value always gives the same bytes."""
    return msgspec.msgpack.encode(message, order="deterministic")


def decode(data: bytes, kind: type[T]) -> T:
    """Read `data` as `kind`; raises msgspec.ValidationError naming the path that is wrong."""
    return msgspec.msgpack.decode(data, type=kind)


def digest(data: bytes) -> str:
    """SHA-256 of `data`, in hex: the content name used everywhere."""
    return hashlib.sha256(data).hexdigest()


def pack_ints(values: Any) -> bytes:
    """Token ids as little-endian int32."""
    return np.asarray(values, dtype="<i4").tobytes()


def unpack_ints(data: bytes) -> NDArray[np.int32]:
    """Inverse of `pack_ints`, shape (n,)."""
    return np.frombuffer(data, dtype="<i4")


def pack_floats(values: Any) -> bytes:
    """Log-probabilities as little-endian float32."""
    return np.asarray(values, dtype="<f4").tobytes()


def unpack_floats(data: bytes) -> NDArray[np.float32]:
    """Inverse of `pack_floats`, shape (n,)."""
    return np.frombuffer(data, dtype="<f4")


def pack_mask(values: Any) -> bytes:
    """Action mask as uint8, 1 where the policy chose the token."""
    return np.asarray(values, dtype="u1").tobytes()


def unpack_mask(data: bytes) -> NDArray[np.uint8]:
    """Inverse of `pack_mask`, shape (n,)."""
    return np.frombuffer(data, dtype="u1")
