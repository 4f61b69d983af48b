"""What a profile is measured at, and what becomes of the points (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.profiles import LARGEST_DROP

_CONTEXTS = 8
"""Points of the file's axis of contexts."""
_LEAST = 1e-9
"""Seconds per token of an engine that takes no time: a profile has positive times."""


Row = tuple[float, ...]


class Load(NamedTuple):
    """`batch` samples with prompts of `prompt` tokens each."""

    batch: int
    prompt: int


class Point(NamedTuple):
    """`seconds` per token while the batch holds `context` tokens together."""

    context: float
    seconds: float


def loads(batches: Sequence[int], *, width: int, tokens: int) -> list[Load]:
    """Each batch with short, middle and longest prompts of an engine for `width` tokens a sample.

    Each sample writes `tokens` more. Small batches first, so that what is dear comes last.
    """
    longest = max(width - tokens, 1)
    prompts = sorted({min(2, longest), max(longest // 2, 1), longest})
    return [Load(batch, prompt) for batch in sorted(set(batches)) for prompt in prompts]


def default_batches(slots: int) -> list[int]:
    """Powers of two up to all slots, and all slots."""
    return sorted({min(1 << n, slots) for n in range(slots.bit_length() + 1)})


def suspects(points: Mapping[int, Sequence[Point]]) -> list[tuple[int, int]]:
    """(batch, position) of points that took more than twice as long as one with no smaller load.

    What disturbed such a measurement would make the profile useless: measure it again.
    """
    return [
        (batch, at)
        for batch, those in points.items()
        for at, point in enumerate(those)
        if any(
            other.seconds < point.seconds * LARGEST_DROP
            for larger, others in points.items()
            for other in others
            if larger >= batch and other.context >= point.context
        )
    ]


def grid(points: Mapping[int, Sequence[Point]], axis: Sequence[int]) -> tuple[Row, ...]:
    """Seconds of every batch at every context of `axis`.

    Beyond its own contexts, which no such batch can hold, a row is not above the row of the next
    larger batch, as far as it does not fall for that.
    """
    rows: list[Row] = []
    for batch in sorted(points, reverse=True):
        own = row(points[batch], axis)
        if rows:
            reach = max(point.context for point in points[batch])
            last = max(point.seconds for point in points[batch])
            bound = [max(above, last) for above in rows[-1]]
            own = tuple(
                min(s, b) if at > reach else s for s, b, at in zip(own, bound, axis, strict=True)
            )
        rows.append(own)
    return tuple(reversed(rows))


def contexts(points: Mapping[int, Sequence[Point]]) -> list[int]:
    """The file's axis: geometric between the least and the most context that was measured."""
    seen = [point.context for those in points.values() for point in those]
    low, high = max(min(seen), 1.0), max(*seen, 1.0)
    return sorted({round(c) for c in np.geomspace(low, high, _CONTEXTS)})


def row(points: Sequence[Point], axis: Sequence[int]) -> Row:
    """Seconds of one batch at each context of `axis`.

    Between points drawn straight; below the first as there; beyond the last by the slope of all
    of them (least squares), never falling: a batch cannot hold more than its samples' width, but
    the file has a number for each point of its grid.
    """
    known = sorted(points)
    at = np.asarray([p.context for p in known])
    seconds = np.maximum.accumulate(np.asarray([max(p.seconds, _LEAST) for p in known]))
    slope = max(_slope(at, seconds), 0.0)
    wanted = np.asarray(axis, float)
    beyond = np.maximum(wanted - at[-1], 0.0) * slope
    return tuple(float(s) for s in np.interp(wanted, at, seconds) + beyond)


def _slope(at: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64]) -> float:
    spread = at - at.mean()
    return float(spread @ (seconds - seconds.mean()) / max(float(spread @ spread), 1e-12))
