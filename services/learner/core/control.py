"""A KL coefficient that follows a target (Ziegler et al., arXiv 1909.08593, section 2.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LARGEST = 0.2


@dataclass(frozen=True)
class KlControl:
    """`coefficient` now; `target`: KL per token in nats, None: it stays; `rate` of change."""

    coefficient: float
    target: float | None
    rate: float

    def after(self, kl: float) -> KlControl:
        """The control after a batch with this KL: up where it was above the target, else down."""
        if self.target is None or not math.isfinite(kl):
            return self
        error = min(_LARGEST, max(-_LARGEST, kl / self.target - 1.0))
        return KlControl(self.coefficient * (1.0 + self.rate * error), self.target, self.rate)
