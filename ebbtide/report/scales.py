"""Axes: round ticks, and from values to points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Maps values [low, high] linearly to points [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The point of `value`."""
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values that cover [low, high]: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    digits = 12 - math.floor(math.log10(step))  # of the step: a tick may be as small as 1e-12
    return [round(number * step, digits) for number in range(first, last + 1)]


def whole_ticks(low: int, high: int, about: int = 8) -> list[int]:
    """The same for counts: whole numbers, none beyond `high`."""
    chosen = (value for value in ticks(low, max(high, low + 1), about) if value == int(value))
    return [int(value) for value in chosen if low <= value <= high]


def extent(values: Iterable[float], *, zero: bool) -> tuple[float, float]:
    """Lowest and highest, with 0 in it if wanted; (0, 1) for nothing."""
    found = list(values)
    if not found:
        return 0.0, 1.0
    low, high = min(found), max(found)
    return (min(low, 0.0), max(high, 0.0)) if zero else (low, high)


def label(value: float) -> str:
    """A tick's text: at most four significant digits, no needless zeros."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def labels(marks: Sequence[float]) -> list[str]:
    """Texts of ticks, with as many digits as tell them apart."""
    short = [label(mark) for mark in marks]
    if len(set(short)) == len(set(marks)):
        return short
    return [f"{mark:.9g}" for mark in marks]
