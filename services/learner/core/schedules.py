"""Learning rate as a function of the update's number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ebbtide.spec import ScheduleSpec


@dataclass(frozen=True)
class Schedule:
    """`base` rate, reached after the warm-up; `total` updates from the first to the last."""

    spec: ScheduleSpec
    base: float
    total: int

    def rate(self, update: int) -> float:
        """Learning rate of update `update`, counted from 0; past the end it stays the last."""
        warmup = self.spec.warmup_updates
        if update < warmup:
            return self.base * (update + 1) / warmup
        progress = min(1.0, (update - warmup) / max(1, self.total - warmup))
        return self.base * self._share(progress)

    def _share(self, progress: float) -> float:
        final = self.spec.final_fraction
        match self.spec.type:
            case "constant":
                return 1.0
            case "linear":
                return 1.0 - (1.0 - final) * progress
            case "cosine":
                return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
