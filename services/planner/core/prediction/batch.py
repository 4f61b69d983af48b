"""The answers of a step as columns (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.locate import Ended
from services.planner.core.prediction.predictor import Observation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Batch:
    """n answers to m distinct prompts: `rows`, `logs`, `censored` (n,), the rest (m,)."""

    ids: list[str]
    tasks: list[str]
    prompt_tokens: NDArray[np.int32]
    rows: NDArray[np.intp]
    logs: Floats
    censored: NDArray[np.bool_]

    @staticmethod
    def of(ended: Sequence[Observation]) -> Batch:
        first: dict[str, int] = {}
        rows = [first.setdefault(one.prompt_id, len(first)) for one in ended]
        of_prompt = {one.prompt_id: one for one in ended}
        prompts = [of_prompt[name] for name in first]
        return Batch(
            list(first),
            [one.task for one in prompts],
            np.array([one.prompt_tokens for one in prompts], dtype=np.int32),
            np.array(rows, dtype=np.intp),
            logs_of(ended),
            np.array([one.censored for one in ended], dtype=np.bool_),
        )

    def ended(self) -> Ended:
        """Counts and sums by prompt."""
        exact, cut = (~self.censored).astype(np.float64), self.censored.astype(np.float64)
        weights = (exact, exact * self.logs, cut, cut * self.logs)
        sums = [np.bincount(self.rows, weight, len(self.ids)) for weight in weights]
        return Ended(*(np.asarray(one, dtype=np.float64) for one in sums))

    def chance(self) -> tuple[float, float]:
        """Squares about the means of prompts none of whose answers was cut, and their freedom."""
        ended = self.ended()
        whole = (ended.cut == 0) & (ended.count > 1)
        means = ended.total / np.maximum(ended.count, 1.0)
        squares = (self.logs - means[self.rows]) ** 2
        return float(squares[whole[self.rows]].sum()), float((ended.count - 1)[whole].sum())


def logs_of(ended: Sequence[Observation]) -> Floats:
    """(n,) logs of lengths; an answer without a token counts as one token."""
    return np.log(np.array([max(one.length, 1) for one in ended], dtype=np.float64))
