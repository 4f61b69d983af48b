"""The default predictor: prior by task and prompt length, history per prompt, siblings (pure).

On the scale of log tokens the length of a sample is
`level of the policy + place of its prompt + what prompt and policy make together + chance`,
whose variances on a real workload are 2, 65, 7 and 26 % (TailSieve 2026). A prompt's place is
filtered over its visits (shrinkage: few visits stay near the prior of its task and length), the
level follows the mean surprise of each step, the two variances that no history removes are
measured, and the ended siblings of the running step speak for their group. Censored answers
count as "longer than" everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.planner.core.prediction.batch import Batch, logs_of
from services.planner.core.prediction.forecast import Forecast, Logs, clipped
from services.planner.core.prediction.history import History, Rows
from services.planner.core.prediction.locate import (
    Ended,
    Normal,
    Running,
    beyond,
    locate,
    without_own,
)
from services.planner.core.prediction.predictor import Observation, Queries, check
from services.planner.core.prediction.prior import Prior, PriorState
from services.planner.core.prediction.shape import Shape
from services.planner.core.prediction.siblings import Siblings
from services.planner.core.prediction.spread import Spread

Floats = NDArray[np.float64]

_MEAN, _VARIANCE = 0, 1  # columns of the history
_LEAST_BETWEEN = 0.1  # of a cell's variance: a new prompt's place is never taken for known
_NOBODY = Running(np.zeros(0, dtype=np.intp), np.zeros(0))


class _State(msgspec.Struct, frozen=True):
    history: Rows
    prior: PriorState
    shape: bytes
    spread: Spread
    step: int
    open: tuple[Observation, ...]


@dataclass(frozen=True)
class _Believed:
    """Of m prompts before siblings speak: their cells, where they lie, and who has a history."""

    cells: NDArray[np.intp]
    place: Normal
    known: NDArray[np.bool_]


class Blend:
    """A Predictor.

    `limit`: tokens an answer may have. `memory`: what a step leaves of the
    weight of earlier ones. `keep`: what a visit leaves of the certainty about a prompt.
    """

    def __init__(
        self, *, limit: int, memory: float = 0.98, keep: float = 0.9, capacity: int = 1_000_000
    ) -> None:
        assert limit >= 1, "an answer may have at least one token"
        self._limit, self._memory, self._keep = limit, memory, keep
        self._history = History(2, capacity)
        self._prior = Prior(limit=limit, memory=memory)
        self._shape = Shape(memory=memory)
        self._spread = Spread()
        self._step = 0
        self._open: list[Observation] = []
        self._siblings, self._heard = Siblings(), 0

    def observe(self, observation: Observation) -> None:
        check(observation)
        if observation.step > self._step:
            self.end_step(observation.step - 1)
        self._open.append(observation)

    def forecast(self, queries: Queries) -> Forecast:
        if queries.step > self._step:
            self.end_step(queries.step - 1)
        believed = self._believe(queries.prompt_ids, queries.tasks, queries.prompt_tokens)
        ended, (telling, running) = self._heard_of(queries), _running(queries)
        found = locate(self._in_step(believed.place), ended, running, self._spread.within)
        whole = self._quantiles(found, self._shapes(believed))[queries.rows]
        if telling.any():
            others = without_own(found, running, self._spread.within)
            shapes = self._shapes(believed)[running.rows]
            whole[telling] = self._quantiles(others, shapes)
        return clipped(whole, self._limit)

    def _quantiles(self, place: Normal, shapes: Logs) -> Logs:
        """(n, levels) tokens of samples of groups that lie so, with deviations of that shape."""
        spread = np.sqrt(place.variance + self._spread.within).astype(np.float32)
        logs = place.mean.astype(np.float32)[:, None] + shapes * spread[:, None]
        return np.exp(np.minimum(logs, np.float32(np.log(self._limit))))

    def end_step(self, step: int) -> None:
        if step < self._step:
            return
        if self._open:
            self._learn(self._open)
        self._step, self._open = step + 1, []
        self._siblings, self._heard = Siblings(), 0

    def dump(self) -> bytes:
        state = _State(
            self._history.dump(),
            self._prior.dump(),
            self._shape.dump(),
            self._spread,
            self._step,
            tuple(self._open),
        )
        return msgspec.msgpack.encode(state)

    def load(self, state: bytes) -> None:
        held = msgspec.msgpack.decode(state, type=_State)
        self._history.load(held.history)
        self._prior.load(held.prior)
        self._shape.load(held.shape)
        self._spread, self._step, self._open = held.spread, held.step, list(held.open)
        self._siblings, self._heard = Siblings(), 0

    def _believe(
        self, ids: Sequence[str], tasks: Sequence[str], prompt_tokens: NDArray[np.int32]
    ) -> _Believed:
        slots, cells = self._history.find(ids), self._prior.places(tasks, prompt_tokens)
        known, of_cell = slots >= 0, self._prior.cells()
        mean = np.where(
            known,
            self._history.read(slots, _MEAN, 0.0) + self._spread.level,
            of_cell.mean[cells],
        )
        visited = self._history.read(slots, _VARIANCE, 0.0)
        variance = np.where(known, visited, self._between(cells))
        return _Believed(cells, Normal(mean, variance), known)

    def _between(self, cells: NDArray[np.intp]) -> Floats:
        """(m,) variance of the places of new prompts: what chance and wobble leave of a cell's."""
        whole = self._prior.cells().variance[cells]
        rest = whole - self._spread.within - self._spread.wobble
        return np.asarray(np.maximum(rest, _LEAST_BETWEEN * whole + 1e-4))

    def _in_step(self, place: Normal) -> Normal:
        return Normal(place.mean, place.variance + self._spread.wobble)

    def _shapes(self, believed: _Believed) -> Logs:
        """(m, levels) deviations: learned ones for known prompts, their cell's for new ones."""
        of_cell = self._prior.cells()
        spread = np.sqrt(of_cell.variance + 1e-4)[:, None]
        cells = (of_cell.quantiles - of_cell.mean[:, None]) / spread
        known = self._shape.levels().astype(np.float32)
        return np.where(believed.known[:, None], known, cells.astype(np.float32)[believed.cells])

    def _heard_of(self, queries: Queries) -> Ended:
        if queries.step != self._step:
            return Siblings().read(queries.groups)
        new = [one for one in self._open[self._heard :] if one.step == self._step]
        groups = np.array([one.group for one in new], dtype=np.intp)
        cut = np.array([one.censored for one in new], dtype=np.bool_)
        self._siblings.add(groups, logs_of(new), cut)
        self._heard = len(self._open)
        return self._siblings.read(queries.groups)

    def _learn(self, ended: Sequence[Observation]) -> None:
        batch = Batch.of(ended)
        before = self._believe(batch.ids, batch.tasks, batch.prompt_tokens)
        self._learn_shape(batch, before)
        self._learn_spread(batch, before)
        self._prior.learn(batch.tasks, batch.prompt_tokens, batch.rows, batch.logs, batch.censored)
        after = self._believe(batch.ids, batch.tasks, batch.prompt_tokens)  # new prior, new level
        self._learn_places(batch, after)

    def _learn_shape(self, batch: Batch, believed: _Believed) -> None:
        in_step = self._in_step(believed.place)
        spread = np.sqrt(in_step.variance + self._spread.within)
        deviations = (batch.logs - in_step.mean[batch.rows]) / spread[batch.rows]
        known = believed.known[batch.rows]
        self._shape.learn(deviations[known], batch.censored[known])

    def _learn_spread(self, batch: Batch, believed: _Believed) -> None:
        squares, freedom = batch.chance()
        self._spread = self._spread.with_chance(squares, freedom, self._memory)
        found = locate(self._in_step(believed.place), batch.ended(), _NOBODY, self._spread.within)
        means, counts = _completed(batch, found, self._spread.within)
        known, place = believed.known, believed.place
        self._spread = self._spread.with_surprise(
            (means - place.mean)[known],
            counts[known],
            Normal(place.mean[known], place.variance[known]),
            self._memory,
        )

    def _learn_places(self, batch: Batch, believed: _Believed) -> None:
        place, in_step = believed.place, self._in_step(believed.place)
        found = locate(in_step, batch.ended(), _NOBODY, self._spread.within)
        share = place.variance / in_step.variance
        mean = place.mean + share * (found.mean - place.mean)
        variance = place.variance - share**2 * (in_step.variance - found.variance)
        between = self._between(believed.cells)
        aged = np.clip(variance / self._keep, 1e-6, np.maximum(between, 1e-6))
        self._history.write(batch.ids, np.stack([mean - self._spread.level, aged]), self._step)


def _completed(batch: Batch, found: Normal, within: float) -> tuple[Floats, Floats]:
    """(m,) mean log length by prompt, cut answers at their expectation, and counts."""
    expected = beyond(batch.logs, found.mean[batch.rows], within)
    logs = np.where(batch.censored, expected, batch.logs)
    counts = np.bincount(batch.rows, minlength=len(batch.ids)).astype(np.float64)
    return np.bincount(batch.rows, logs, len(batch.ids)) / counts, counts


def _running(queries: Queries) -> tuple[NDArray[np.bool_], Running]:
    """Which samples (n,) have something to tell, each to the others of its group, and what.

    One that runs alone in its group has nobody to tell.
    """
    if queries.done is None:
        return np.zeros(len(queries), dtype=np.bool_), _NOBODY
    begun = queries.done > 0
    together = np.bincount(queries.rows[begun], minlength=len(queries.groups)) > 1
    telling = np.asarray(begun & together[queries.rows], dtype=np.bool_)
    logs = np.log(queries.done[telling].astype(np.float64))
    return telling, Running(queries.rows[telling], logs)
