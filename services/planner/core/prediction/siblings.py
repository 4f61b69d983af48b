"""What a step's ended answers say about their groups; gone when the step is over (pure)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.locate import Ended

Floats = NDArray[np.float64]


class Siblings:
    """Counts and sums of log lengths by group number.

    Added one after the other in the order of arrival, so that the sums are the same to the last
    bit however the answers were batched.
    """

    def __init__(self) -> None:
        self._sums: Floats = np.zeros((4, 0))

    def add(self, groups: NDArray[np.intp], logs: Floats, censored: NDArray[np.bool_]) -> None:
        if not len(groups):
            return
        missing = int(groups.max()) + 1 - self._sums.shape[1]
        if missing > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, missing)))
        ended = np.where(censored, 2, 0)
        np.add.at(self._sums, (ended, groups), 1.0)
        np.add.at(self._sums, (ended + 1, groups), logs)

    def read(self, groups: NDArray[np.int32]) -> Ended:
        """What is known about these groups (m,)."""
        sums = np.zeros((4, len(groups)))
        known = np.asarray(groups) < self._sums.shape[1]
        sums[:, known] = self._sums[:, groups[known]]
        return Ended(*sums)
