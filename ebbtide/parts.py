"""Many small blobs in one object: `path@offset` names the part that begins there (pure).

A part's size stands in its Ref, as its digest does. One object is one write: on a disk one
commit, in a bucket one request, for however many rollouts ended together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ebbtide.errors import Corrupt
from ebbtide.wire import Ref, digest

_MARK = "@"


def refs(path: str, parts: Sequence[bytes]) -> list[Ref]:
    """What names each of `parts`, which lie in the object `path` one behind the other."""
    starts = accumulate(map(len, parts), initial=0)
    return [
        Ref(path=f"{path}{_MARK}{start}", digest=digest(part), size=len(part))
        for start, part in zip(starts, parts, strict=False)
    ]


def place(path: str) -> tuple[str, int | None]:
    """The object that `path` lies in, and where it begins there; None: it is the object."""
    whole, mark, start = path.partition(_MARK)
    if not mark:
        return path, None
    if not start.isdecimal():
        raise Corrupt(f"{path} names no part of a blob")
    return whole, int(start)


def of(data: bytes, ref: Ref) -> bytes:
    """What `ref` names in `data`, the whole object that it lies in."""
    _, start = place(ref.path)
    return data if start is None else data[start : start + ref.size]
