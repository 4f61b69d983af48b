"""Lists of jobs: newest first, filtered, with a cursor that survives inserts and deletions."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from ebbtide.ports import Resource
from services.gateway.core.problems import Problem
from services.gateway.core.state import state_of

T = TypeVar("T")


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Place in a list: what was last given, and for which filter."""

    created: str
    name: str
    query: str


class Query(msgspec.Struct, frozen=True):
    """What to list. `labels` must all match; an empty `states` means any."""

    states: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """Short name of the filter, so that a cursor is not used with another one."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]


def parse_labels(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`key=value` filters; raises a problem for anything else."""
    pairs: list[tuple[str, str]] = []
    for text in given:
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise Problem("malformed", "label must be written key=value.")
        pairs.append((key, value))
    return tuple(sorted(pairs))


def page(
    jobs: Sequence[Resource], query: Query, *, after: str | None, limit: int
) -> tuple[list[Resource], str | None]:
    """At most `limit` jobs after the cursor, and the next cursor or None at the end."""
    ordered = sorted(jobs, key=_place, reverse=True)
    wanted = [job for job in ordered if not query.states or state_of(job).name in query.states]
    if after is not None:
        last = decode(after, Cursor)
        if last.query != query.digest:
            raise Problem("malformed", "The cursor belongs to a list with other filters.")
        wanted = [job for job in wanted if _place(job) < (last.created, last.name)]
    chosen = wanted[:limit]
    more = len(wanted) > limit
    return chosen, encode(Cursor(*_place(chosen[-1]), query.digest)) if more else None


def _place(job: Resource) -> tuple[str, str]:
    return job.metadata.creation_timestamp, job.metadata.name


def matches(labels: Mapping[str, str], wanted: Sequence[tuple[str, str]]) -> bool:
    """Whether all wanted labels are there."""
    return all(labels.get(key) == value for key, value in wanted)


def encode(cursor: msgspec.Struct) -> str:
    """An opaque text for `cursor`."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def decode(text: str, kind: type[T]) -> T:
    """Inverse of `encode`; raises a problem for what we did not make."""
    padded = text + "=" * (-len(text) % 4)
    try:
        data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(data, type=kind)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise Problem("malformed", "The cursor is not one that this API gave.") from None
