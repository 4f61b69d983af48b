"""Hand-outs in messages that the broker takes (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.streams import MAX_MESSAGE_BYTES
from ebbtide.wire import Assign, encode

AT_ONCE = 128
_HEAD_BYTES = 256
"""What a Submit has beside its hand-outs, generously."""


def parcels(
    assigns: Sequence[Assign], *, most: int = MAX_MESSAGE_BYTES - _HEAD_BYTES
) -> Iterator[tuple[Assign, ...]]:
    """`assigns` in order, at most `AT_ONCE` together and `most` bytes; one alone may have more.

    Names of prompts come from users' files, so their length is nobody's promise.
    """
    parcel: list[Assign] = []
    size = 0
    for assign in assigns:
        more = len(encode(assign))
        if parcel and (len(parcel) == AT_ONCE or size + more > most):
            yield tuple(parcel)
            parcel, size = [], 0
        parcel.append(assign)
        size += more
    if parcel:
        yield tuple(parcel)
