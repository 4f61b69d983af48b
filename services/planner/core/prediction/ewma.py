"""RLHFless's predictor as published: a moving average per prompt over epochs (pure).

`Lhat_s = a * L_{s-1} + (1 - a) * Lhat_{s-1}` (arXiv 2602.22718), one `L` per prompt and step: the
mean over its samples. The weight is not published; `a = 2 / (W + 1)` is the usual reading of a
window of W epochs and gives the published default exactly: with W = 1 the last epoch's length.

As published it is a point, blind to the step it is in: every quantile is the same number, cut
answers count as ended, siblings are not heard. Where a prompt is new the paper leaves the choice
open; here it is the same average over steps of the mean length of all answers, and half of the
limit before the first.
"""

from __future__ import annotations

import msgspec
import numpy as np

from services.planner.core.prediction.forecast import LEVELS, Forecast, clipped
from services.planner.core.prediction.history import History, Rows
from services.planner.core.prediction.predictor import Observation, Queries, check


class _State(msgspec.Struct, frozen=True):
    history: Rows
    overall: float | None
    step: int
    open: tuple[Observation, ...]


class Ewma:
    """A Predictor. `limit`: tokens an answer may have; `window`: W in epochs."""

    def __init__(self, *, limit: int, window: int = 1, capacity: int = 1_000_000) -> None:
        assert limit >= 1, "an answer may have at least one token"
        assert window >= 1, "a window holds at least one epoch"
        self._limit = limit
        self._weight = 2.0 / (window + 1.0)
        self._history = History(1, capacity)
        self._overall: float | None = None
        self._step = 0
        self._open: list[Observation] = []

    def observe(self, observation: Observation) -> None:
        check(observation)
        if observation.step > self._step:
            self.end_step(observation.step - 1)
        self._open.append(observation)

    def forecast(self, queries: Queries) -> Forecast:
        if queries.step > self._step:
            self.end_step(queries.step - 1)
        unseen = self._limit / 2.0 if self._overall is None else self._overall
        lengths = self._history.read(self._history.find(queries.prompt_ids), 0, unseen)
        return clipped(np.repeat(lengths[queries.rows, None], len(LEVELS), axis=1), self._limit)

    def end_step(self, step: int) -> None:
        if step < self._step:
            return
        self._learn(self._open)
        self._step, self._open = step + 1, []

    def dump(self) -> bytes:
        history = self._history.dump()
        return msgspec.msgpack.encode(_State(history, self._overall, self._step, tuple(self._open)))

    def load(self, state: bytes) -> None:
        held = msgspec.msgpack.decode(state, type=_State)
        self._history.load(held.history)
        self._overall, self._step, self._open = held.overall, held.step, list(held.open)

    def _learn(self, ended: list[Observation]) -> None:
        if not ended:
            return
        ids = list(dict.fromkeys(one.prompt_id for one in ended))
        row = {name: number for number, name in enumerate(ids)}
        lengths = np.array([one.length for one in ended], dtype=np.float64)
        rows = np.array([row[one.prompt_id] for one in ended], dtype=np.intp)
        means = np.bincount(rows, lengths) / np.bincount(rows)
        held = self._history.read(self._history.find(ids), 0, np.nan)
        moved = np.where(np.isnan(held), means, held + self._weight * (means - held))
        self._history.write(ids, moved[None], ended[-1].step)
        overall, level = self._overall, float(lengths.mean())
        self._overall = level if overall is None else overall + self._weight * (level - overall)
