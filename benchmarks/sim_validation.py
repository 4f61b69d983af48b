"""Published measurements that the fit of the speed formula did not see: the largest error.

Fitted: TP 1, 2 and 8 of Vidur's rows, and three model sizes at an empty context. Left out: TP 4 at
every batch that decodes, the other sizes, and every longer context.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from services.planner.simulate.calibration import left_out


def measure() -> Measured:
    """Every row left out."""
    found = left_out()
    rows = [(one.name, one.measured * 1e3, one.predicted * 1e3, one.error * 100) for one in found]
    worst = max(abs(one.error) for one in found) * 100
    return Measured(worst, ("row", "measured ms", "predicted ms", "error %"), rows)
