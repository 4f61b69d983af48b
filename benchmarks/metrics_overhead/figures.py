"""From pairs of CPU seconds to the figure that is judged (pure)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.ablation.figures import interval

COLUMNS = ("pair", "CPU seconds on", "CPU seconds off", "excess %")


@dataclass(frozen=True)
class Pair:
    """The same job on both sides: CPU seconds of all processes of each stack."""

    on: float
    off: float

    @property
    def excess(self) -> float:
        """Percent more with metrics and tracing."""
        return (self.on / self.off - 1.0) * 100.0


def judged(pairs: Sequence[Pair], *, spans: int, scrapes: int) -> float:
    """Upper end of the 95 % confidence interval of the mean excess.

    NaN where nobody looked: without spans and scrapes both sides are alike.
    """
    if not spans or not scrapes:
        return math.nan
    found = [pair.excess for pair in pairs]
    return statistics.fmean(found) + interval(found)


def table(
    pairs: Sequence[Pair], *, spans: int, scrapes: int
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Columns and rows."""
    rows: list[Sequence[object]] = [
        (number, pair.on, pair.off, pair.excess) for number, pair in enumerate(pairs, start=1)
    ]
    found = [pair.excess for pair in pairs]
    rows.append(("mean", *_means(pairs), statistics.fmean(found)))
    rows.append(("95 %", "", "", f"+- {interval(found):.3g}"))
    rows.append((f"{spans} spans, {scrapes} scrapes", "", "", ""))
    return COLUMNS, rows


def _means(pairs: Sequence[Pair]) -> tuple[float, float]:
    return statistics.fmean(p.on for p in pairs), statistics.fmean(p.off for p in pairs)
