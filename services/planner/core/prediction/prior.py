"""How long answers of a task to prompts of a size are: what is known of a prompt never seen (pure).

Histograms of log length by task and by the prompt's length (in powers of two) that forget over
steps. A cell with few answers leans on its task, a task on all answers, and all on a wide guess
around a quarter of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.forecast import LEVELS
from services.planner.core.prediction.sketch import Sketch, moments, quantiles

Floats = NDArray[np.float64]

_BINS = 96
_SIZES = 16  # prompts of up to 2**15 tokens are told apart
_TASKS = 256  # tasks beyond these share the last one's cells
_LEAN = 40.0  # answers that a broader group is worth to a narrower one
_GUESS = 4.0  # answers that the guess is worth to all


class PriorState(msgspec.Struct, frozen=True):
    tasks: tuple[str, ...]
    weights: bytes


@dataclass(frozen=True)
class Cells:
    """Log lengths by cell: mean and variance (cells,), quantiles (cells, len(LEVELS))."""

    mean: Floats
    variance: Floats
    quantiles: Floats


class Prior:
    """`limit`: tokens an answer may have; `memory`: the share of its weight a step leaves."""

    def __init__(self, *, limit: int, memory: float) -> None:
        high = max(float(np.log(limit)), 1.0) * _BINS / (_BINS - 1)  # the last bin: at the limit
        self._sketch = Sketch(_SIZES, low=0.0, high=high, bins=_BINS)
        self._tasks: dict[str, int] = {"": 0}
        self._memory = memory
        self._cells: Cells | None = None

    def places(self, tasks: Sequence[str], prompt_tokens: NDArray[np.int32]) -> NDArray[np.intp]:
        """(m,) the cell of each; a task never seen stands with the cell of no task."""
        get = self._tasks.get
        rows = np.array([get(task, 0) for task in tasks], dtype=np.intp)
        return rows * _SIZES + _size(prompt_tokens)

    def cells(self) -> Cells:
        """What each cell says, its broader groups mixed in."""
        if self._cells is None:
            mixed, edges = self._mixed(), self._sketch.edges
            mean, variance = moments(mixed, edges)
            self._cells = Cells(mean, variance, quantiles(mixed, edges, np.array(LEVELS)))
        return self._cells

    def learn(
        self,
        tasks: Sequence[str],
        prompt_tokens: NDArray[np.int32],
        rows: NDArray[np.intp],
        logs: Floats,
        censored: NDArray[np.bool_],
    ) -> None:
        """Take in one step's answers (n,) as logs of tokens, to the prompts (m,) at `rows`."""
        for task in dict.fromkeys(tasks):
            self._tasks.setdefault(task, min(len(self._tasks), _TASKS - 1))
        self._sketch.reserve((max(self._tasks.values()) + 1) * _SIZES)
        self._sketch.decay(self._memory)
        self._sketch.add(self.places(tasks, prompt_tokens)[rows], logs, censored)
        self._cells = None

    def dump(self) -> PriorState:
        return PriorState(tuple(self._tasks), self._sketch.weights.astype("<f8").tobytes())

    def load(self, state: PriorState) -> None:
        self._tasks = {task: min(row, _TASKS - 1) for row, task in enumerate(state.tasks)}
        self._sketch.weights = np.frombuffer(state.weights, dtype="<f8").reshape(-1, _BINS).copy()
        self._cells = None

    def _mixed(self) -> Floats:
        by_cell = self._sketch.weights.reshape(-1, _SIZES, _BINS)
        by_task = by_cell.sum(axis=1, keepdims=True)
        overall = by_task.sum(axis=0, keepdims=True) + _GUESS * self._guess()
        by_task = by_task + _LEAN * overall / overall.sum()
        shares = by_task / by_task.sum(axis=2, keepdims=True)
        return np.asarray((by_cell + _LEAN * shares).reshape(-1, _BINS))

    def _guess(self) -> Floats:
        edges = self._sketch.edges
        middles = (edges[1:] + edges[:-1]) / 2
        weights = np.exp(-0.5 * (middles - max(edges[-2] - np.log(4.0), 0.0)) ** 2)
        return np.asarray(weights / weights.sum())


def _size(prompt_tokens: NDArray[np.int32]) -> NDArray[np.intp]:
    return np.clip(np.log2(np.maximum(prompt_tokens, 1)), 0, _SIZES - 1).astype(np.intp)
