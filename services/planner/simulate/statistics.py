"""Means over seeds with confidence intervals, and fronts of time against cost (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

_LEVEL = 0.975


class Estimate(NamedTuple):
    """A mean over seeds and its 95 % confidence interval (Student's t)."""

    mean: float
    low: float
    high: float

    def words(self, digits: int = 3) -> str:
        """For people; without an interval where none is known."""
        if math.isnan(self.low):
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def estimate(values: Sequence[float]) -> Estimate:
    """Of one value per seed; no interval is known from a single one (NaN)."""
    seen = np.asarray(values, float)
    mean = float(seen.mean()) if len(seen) else math.nan
    if len(seen) < 2:
        return Estimate(mean, math.nan, math.nan)
    half = student(len(seen) - 1) * float(seen.std(ddof=1)) / math.sqrt(len(seen))
    return Estimate(mean, mean - half, mean + half)


def ratios(values: Sequence[float], beside: Sequence[float]) -> Estimate:
    """Of paired values, seed by seed (common random numbers)."""
    return estimate([a / b for a, b in zip(values, beside, strict=True)])


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Cornish-Fisher; exact for 1 and 2)."""
    if freedom == 1:
        return math.tan(math.pi * (_LEVEL - 0.5))
    if freedom == 2:
        return (2 * _LEVEL - 1) * math.sqrt(2 / (4 * _LEVEL * (1 - _LEVEL)))
    z, n = NormalDist().inv_cdf(_LEVEL), float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


class Point(NamedTuple):
    """Of a front: time and cost of one setting."""

    time: float
    cost: float
    setting: str = ""


def front(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both, fastest first."""
    best, found = math.inf, list[Point]()
    for point in sorted(points):
        if point.cost < best:
            found.append(point)
            best = point.cost
    return found


def cost_at(points: Sequence[Point], time: float) -> float:
    """Of the front at this time, along straight lines; infinite where nobody is so fast."""
    known = front(points)
    if not known or time < known[0].time:
        return math.inf
    return float(np.interp(time, [p.time for p in known], [p.cost for p in known]))


def dominated(point: Point, points: Sequence[Point]) -> bool:
    """Whether some of `points` is no worse in both and better in one."""
    return any(
        p.time <= point.time and p.cost <= point.cost and (p.time, p.cost) != point[:2]
        for p in points
    )
