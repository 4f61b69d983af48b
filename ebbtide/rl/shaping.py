"""Penalties on the length of an answer, before the group's baseline is taken.

Who calls it: the planner when it freezes a batch. Lengths are tokens of the action mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ebbtide.errors import Refused
from ebbtide.spec import LengthPenalty


class Penalty(msgspec.Struct, frozen=True):
    """A LengthPenalty of the job as plain data; the fields that its kind has not are 0."""

    kind: str
    weight: float
    buffer_share: float = 0.0
    pass_threshold: float = 0.0


def penalty_of(spec: LengthPenalty | None) -> Penalty | None:
    """The plain form of `spec`."""
    if spec is None:
        return None
    fields = spec.model_dump()
    return Penalty(kind=fields.pop("type"), **fields)


def shaped(
    values: Sequence[float], lengths: Sequence[int], *, limit: int, penalty: Penalty | None
) -> list[float]:
    """The rewards of one group less the `penalty` on their lengths; `limit`: longest answer."""
    if penalty is None:
        return list(values)
    match penalty.kind:
        case "soft-overlong":
            losses = [_overlong(n, limit, penalty.buffer_share) for n in lengths]
        case "linear":
            losses = [n / limit for n in lengths]
        case "relative":
            losses = _relative(lengths, [v >= penalty.pass_threshold for v in values])
        case unknown:
            raise Refused(f"unknown penalty {unknown!r}", field="/algorithm/lengthPenalty")
    return [value - penalty.weight * loss for value, loss in zip(values, losses, strict=True)]


def _overlong(length: int, limit: int, share: float) -> float:
    """0 up to the buffer, 1 at the limit, a line between (DAPO, arXiv 2503.14476, eq. 13)."""
    width = share * limit
    return min(1.0, max(0.0, (length - (limit - width)) / width))


def _relative(lengths: Sequence[int], right: Sequence[bool]) -> list[float]:
    """From -1/2 for the shortest to 1/2 for the longest (Kimi k1.5, arXiv 2501.12599).

    What would be a reward is none for a wrong answer. Equal lengths: 0.
    """
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    places = [(n - shortest) / (longest - shortest) - 0.5 for n in lengths]
    return [place if good else max(0.0, place) for place, good in zip(places, right, strict=True)]
