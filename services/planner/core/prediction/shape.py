"""What deviations of seen prompts look like, in standard deviations: learned, not assumed (pure).

Quantiles of `(log length - expected) / spread` keep the forecasts calibrated whatever the tail is
like: what the variances get wrong, this puts right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.forecast import LEVELS
from services.planner.core.prediction.sketch import Sketch, quantiles

Floats = NDArray[np.float64]

_BINS, _REACH = 128, 6.0
_WORTH = 200.0  # answers that the normal curve is worth at the start


class Shape:
    """`memory`: the share of its weight that a step leaves."""

    def __init__(self, *, memory: float) -> None:
        self._sketch = Sketch(1, low=-_REACH, high=_REACH, bins=_BINS)
        middles = (self._sketch.edges[1:] + self._sketch.edges[:-1]) / 2
        normal = np.exp(-0.5 * middles**2)
        self._sketch.weights = (_WORTH * normal / normal.sum())[None]
        self._memory = memory

    def levels(self) -> Floats:
        """(len(LEVELS),) the deviation at each level."""
        return np.asarray(quantiles(self._sketch.weights, self._sketch.edges, np.array(LEVELS))[0])

    def learn(self, deviations: Floats, censored: NDArray[np.bool_]) -> None:
        """Take in deviations (n,) of one step; a censored one is a lower bound."""
        self._sketch.decay(self._memory)
        self._sketch.add(np.zeros(len(deviations), dtype=np.intp), deviations, censored)

    def dump(self) -> bytes:
        return self._sketch.weights.astype("<f8").tobytes()

    def load(self, state: bytes) -> None:
        self._sketch.weights = np.frombuffer(state, dtype="<f8").reshape(1, _BINS).copy()
