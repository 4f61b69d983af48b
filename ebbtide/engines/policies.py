"""What a publication's index says, without torch: digest of a policy, reading and checking.

Used by every engine and by the decode actor's shell. The tensors themselves are read and
written by `ebbtide.engines.publication`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from posixpath import join, normpath

import msgspec

from ebbtide import wire
from ebbtide.errors import Corrupt
from ebbtide.wire import PolicyIndex, PolicyRef, PolicyTensor, Ref

INDEX_NAME = "index.msgpack"


def policy_digest(tensors: Iterable[PolicyTensor], base: str = "") -> str:
    """SHA-256 over the msgpack array of [name, dtype, shape, digest], sorted by name.

    The file that holds a tensor is not part of it: sharding does not change a policy. Of adapters:
    over the array of `base`, the digest of what they are added to, and that array.
    """
    rows = sorted((t.name, t.dtype, t.shape, t.digest) for t in tensors)
    return wire.digest(wire.encode([base, rows] if base else rows))


def read_index(path: Path, expected: PolicyRef | None = None) -> PolicyIndex:
    """Read an index; raises Corrupt when it does not decode, or names another policy."""
    try:
        index = wire.decode(path.read_bytes(), PolicyIndex)
    except (OSError, msgspec.DecodeError) as error:
        raise Corrupt(f"policy index {path.name} cannot be read: {error}") from error
    base = index.adapter.digest if index.adapter else ""
    if policy_digest(index.tensors, base) != index.policy.digest:
        raise Corrupt(f"policy index of version {index.policy.n} contradicts its own digest")
    if expected is not None and expected != index.policy:
        raise Corrupt(f"index holds policy {index.policy}, asked for {expected}")
    return index


def located(index: Ref, file: Ref) -> Ref:
    """The blob of `file`, whose path in an index is relative to the index's own folder."""
    folder = index.path.rpartition("/")[0]
    return msgspec.structs.replace(file, path=normpath(join(folder, file.path)))
