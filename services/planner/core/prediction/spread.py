"""The two variances that no history removes, and the level of the policy: measured (pure)."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.locate import Normal

Floats = NDArray[np.float64]

_LEAST = 1e-4  # of a variance: answers that are all equal stay invertible
_GAIN = 0.5  # how much of a step's mean surprise is taken for a shift of the level
_TRUSTED = 16.0  # prompts seen before that make half of that trust


class Spread(msgspec.Struct, frozen=True):
    """Sums of squares with the counts they stand for, on the scale of log tokens.

    `within`: of answers to one prompt in one step. `wobble`: of a prompt's place from step to
    step. They start from a guess worth 50 answers. `level`: what all lengths have shifted by.
    """

    level: float = 0.0
    within_sum: float = 10.0
    within_count: float = 50.0
    wobble_sum: float = 2.5
    wobble_count: float = 50.0

    @property
    def within(self) -> float:
        return max(self.within_sum / self.within_count, _LEAST)

    @property
    def wobble(self) -> float:
        return max(self.wobble_sum / self.wobble_count, _LEAST)

    def with_chance(self, squares: float, freedom: float, memory: float) -> Spread:
        """After a step whose groups gave these squares about their means."""
        return msgspec.structs.replace(
            self,
            within_sum=self.within_sum * memory + squares,
            within_count=self.within_count * memory + freedom,
        )

    def with_surprise(
        self, surprise: Floats, counts: Floats, place: Normal, memory: float
    ) -> Spread:
        """After a step in which the mean answers of prompts seen before (k,) surprised by so much.

        `counts`: answers in each mean; `place`: what was believed. Their mean shifts the level, what is left beyond the known variances
        is the wobble.
        """
        if not len(surprise):
            return self
        shift = float(surprise.mean())
        gain = _GAIN * len(surprise) / (len(surprise) + _TRUSTED)
        excess = (surprise - shift) ** 2 - place.variance - self.within / counts
        return msgspec.structs.replace(
            self,
            level=self.level + gain * shift,
            wobble_sum=max(self.wobble_sum * memory + float(excess.sum()), 0.0),
            wobble_count=self.wobble_count * memory + len(surprise),
        )
