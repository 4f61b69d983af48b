"""What a policy knows of lengths: a predictor of the planner's, nothing, or everything (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from services.planner.core.prediction.blend import Blend
from services.planner.core.prediction.ewma import Ewma
from services.planner.core.prediction.forecast import LEVELS, Forecast, clipped
from services.planner.core.prediction.predictor import Observation, Predictor, Queries
from services.planner.simulate.answers import Batch
from services.planner.simulate.lengths import Trace

Ints = npt.NDArray[np.integer[Any]]
Belief = Literal["none", "ewma", "weak", "blend", "known"]

WEAK_ACCURACY = 0.44
"""RLHFless's model-based predictor is right about so many prompts (2602.22718)."""


class Believer:
    """Told what ended, in order; asked about a batch or about what of it still runs."""

    def __init__(self, belief: Belief, trace: Trace, limit: int, seed: int = 0) -> None:
        self._belief, self._trace, self._limit = belief, trace, limit
        self._predictor: Predictor | None = None
        if belief in ("ewma", "weak"):
            self._predictor = Ewma(limit=limit)
        elif belief == "blend":
            self._predictor = Blend(limit=limit)
        self._random = np.random.default_rng((seed, 44))
        self._heard = False

    @property
    def informed(self) -> bool:
        """Whether a forecast can be had."""
        return self._belief == "known" or (self._heard and self._predictor is not None)

    def hear(self, batch: Batch, samples: Sequence[int]) -> None:
        """These samples ended."""
        if self._predictor is None:
            return
        self._heard = self._heard or bool(samples)
        for sample in samples:
            self._predictor.observe(self._observation(batch, sample))

    def end(self, step: int) -> None:
        """All of the step has ended."""
        if self._predictor is not None:
            self._predictor.end_step(step)

    def forecast(self, batch: Batch) -> Forecast | None:
        """Of whole answers, one row per sample; None where nothing is known."""
        if not self.informed:
            return None
        if self._belief == "known":
            return _exactly(batch.lengths)
        found = self._ask(batch, np.arange(len(batch)), None)
        return self._spoiled(found, batch) if self._belief == "weak" else found

    def rest(self, batch: Batch, samples: Ints, done: Ints) -> Forecast | None:
        """Tokens to come of these running samples, which have written `done`."""
        if not self.informed:
            return None
        if self._belief == "known":
            return _exactly(np.maximum(batch.lengths[samples] - done, 1))
        found = self._ask(batch, samples, done.astype(np.int32))
        return found.residual(done.astype(np.int32), self._limit)

    def _ask(self, batch: Batch, samples: Ints, done: npt.NDArray[np.int32] | None) -> Forecast:
        assert self._predictor is not None, "somebody to ask"
        groups, first, rows = np.unique(
            batch.group[samples], return_index=True, return_inverse=True
        )
        prompts = batch.prompts[samples][first]
        queries = Queries(
            step=batch.number,
            prompt_ids=[self._trace.prompt_ids[p] for p in prompts.tolist()],
            tasks=[self._trace.tasks[p] for p in prompts.tolist()],
            prompt_tokens=self._trace.prompt_tokens[prompts],
            groups=groups.astype(np.int32),
            rows=rows,
            done=done,
        )
        return self._predictor.forecast(queries)

    def _observation(self, batch: Batch, sample: int) -> Observation:
        prompt = int(batch.prompts[sample])
        return Observation(
            prompt_id=self._trace.prompt_ids[prompt],
            prompt_tokens=int(self._trace.prompt_tokens[prompt]),
            task=self._trace.tasks[prompt],
            step=batch.number,
            group=int(batch.group[sample]),
            length=int(batch.lengths[sample]),
            censored=bool(batch.cut[sample]),
        )

    def _spoiled(self, found: Forecast, batch: Batch) -> Forecast:
        """Right about `WEAK_ACCURACY` of the prompts; the others have each other's lengths."""
        wrong = np.flatnonzero(self._random.random(batch.groups) >= WEAK_ACCURACY)
        of_group = np.arange(batch.groups)
        of_group[wrong] = self._random.permutation(wrong)
        first = np.unique(batch.group, return_index=True)[1]
        return clipped(found.quantiles[first[of_group[batch.group]]], self._limit)


def _exactly(lengths: Ints) -> Forecast:
    rows = np.maximum(np.asarray(lengths, np.float32), 1.0)
    return Forecast(np.repeat(rows[:, None], len(LEVELS), axis=1))
