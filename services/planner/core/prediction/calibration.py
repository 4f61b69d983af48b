"""How good forecasts were, per step: figures for the metrics and for benchmarks (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.forecast import Forecast

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Of `samples` answers, of which `censored` were cut.

    `coverage_p50`, `coverage_p90`: share of answers at or below that quantile (0.5 and 0.9 are
    right); `mae`: mean absolute error of the median in tokens (the point of least such error);
    `rank`: Spearman's correlation of expected and realised lengths; `tail_recall`: share of the
    longest tenth found among the tenth expected longest. NaN where there is nothing to measure.
    """

    samples: int
    censored: int
    coverage_p50: float
    coverage_p90: float
    mae: float
    rank: float
    tail_recall: float


def calibrate(
    forecast: Forecast,
    realised: NDArray[np.int32],
    censored: NDArray[np.bool_],
    *,
    limit: int | None = None,
) -> Calibration:
    """Compare n forecasts with n realised lengths; `censored` (n,) marks answers that were cut.

    A cut answer was at least as long as it got: above a quantile that it passed, silent about
    one that it did not, which is left out of that coverage. So is a quantile at the `limit`,
    where one is given: no answer can be above it. In errors and ranks a cut answer counts with
    its length, for that is what was decoded.
    """
    assert len(forecast) == len(realised) == len(censored), "one answer per forecast"
    lengths = np.asarray(realised, dtype=np.float64)
    expected, median = forecast.mean(), forecast.at(0.5)
    bar = np.inf if limit is None else limit * 0.999
    return Calibration(
        samples=len(lengths),
        censored=int(censored.sum()),
        coverage_p50=_coverage(median, lengths, censored, bar),
        coverage_p90=_coverage(forecast.at(0.9), lengths, censored, bar),
        mae=float(np.abs(lengths - median).mean()) if len(lengths) else float("nan"),
        rank=spearman(expected, lengths),
        tail_recall=tail_recall(expected, lengths),
    )


def spearman(expected: Floats, realised: Floats) -> float:
    """Correlation of ranks, ties at their mean rank; NaN where one side is all equal."""
    if len(expected) < 2:
        return float("nan")
    a, b = _ranks(expected), _ranks(realised)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else float("nan")


def tail_recall(expected: Floats, realised: Floats, share: float = 0.1) -> float:
    """Of the longest `share` of answers (at least one), the part among those expected longest.

    Answers as long as the shortest of the tail share its last places, and so do forecasts, each
    by its part: a flat forecast gets the share that chance would.
    """
    if not len(realised):
        return float("nan")
    count = max(round(share * len(realised)), 1)
    return float(_membership(expected, count) @ _membership(realised, count)) / count


def _coverage(quantile: Floats, lengths: Floats, censored: NDArray[np.bool_], bar: float) -> float:
    tells = (quantile < bar) & (~censored | (lengths > quantile))
    return float((lengths <= quantile)[tells].mean()) if tells.any() else float("nan")


def _ranks(values: Floats) -> Floats:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[group], dtype=np.float64)


def _membership(values: Floats, count: int) -> Floats:
    """(n,) how far each belongs to the `count` largest: 1, 0, or its part of the tied places."""
    bar = np.partition(values, len(values) - count)[len(values) - count]
    above, tied = values > bar, values == bar
    return np.asarray(above + tied * (count - above.sum()) / tied.sum(), dtype=np.float64)
