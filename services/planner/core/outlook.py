"""How long the open step will still decode, by all that its ended answers say (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.planner.core.curves import Curves
from services.planner.core.lengths import Lengths
from services.planner.core.planning.demand import from_forecast
from services.planner.core.planning.rollout_time import rollout_time
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.samples import ACCEPTED, OUT, WAITING, OpenStep

_SECONDS = 1.0
"""A forecast of a whole step is made at most so often."""


class Outlook:
    """Looks again at most once a second; in between the last answer runs down."""

    def __init__(self, *, lengths: Lengths, curves: Curves) -> None:
        self._lengths, self._curves = lengths, curves
        self._seen: tuple[int, float, float] | None = None

    def remaining(self, step: OpenStep, *, slots: int, now: float) -> float | None:
        """Seconds until the last sample is decoded; None where nothing is predicted."""
        if not self._lengths.informed:
            return None
        fresh = self._seen is not None and self._seen[0] == step.plan.step
        if not fresh or self._seen is None or now - self._seen[1] >= _SECONDS:
            self._seen = (step.plan.step, now, self._look(step, slots))
        return max(0.0, self._seen[2] - (now - self._seen[1]))

    def _look(self, step: OpenStep, slots: int) -> float:
        samples = [
            sample
            for sample, state in enumerate(step.states)
            if state in (WAITING, OUT) or (state == ACCEPTED and step.may_go_on(sample))
        ]
        if not samples:
            return 0.0
        done = np.array([written(step, sample) for sample in samples], dtype=np.int32)
        rest = self.rest(step, samples)
        assert rest is not None, "an informed predictor predicts"
        demand = from_forecast(rest)
        prompt = sum(step.group(i).prompt_tokens for i in samples) / len(samples)
        context = prompt + float(done.mean())
        model = rollout_time(self._curves.profile(), demand, slots=slots, prompt_tokens=context)
        names = {name: at for at, name in enumerate(dict.fromkeys(step.actors))}
        holder = np.array([names[step.actors[i]] for i in samples], dtype=np.intp)
        return model.shares(demand, demand.shares_of(holder, len(names))).makespan()

    def rest(self, step: OpenStep, samples: Sequence[int]) -> Forecast | None:
        """Tokens still to come of these samples, one row each; None where nothing is predicted."""
        if not self._lengths.informed:
            return None
        given = [step.given_tokens(sample) for sample in samples]
        drawn = [written(step, i) - n for i, n in zip(samples, given, strict=True)]
        done = np.array(drawn, dtype=np.int32)
        whole = self._lengths.forecast_now(step, np.array(samples, dtype=np.intp), done)
        assert whole is not None, "an informed predictor predicts"
        room = [step.group(i).max_new_tokens - n for i, n in zip(samples, given, strict=True)]
        limits = np.array(room, dtype=np.int32)
        return whole.residual(done, limits)


def written(step: OpenStep, sample: int) -> int:
    """Tokens of the sample that are known to be there: accepted, journalled, or given."""
    known, given, accepted = step.journals[sample], step.given[sample], step.rollouts[sample]
    if accepted is not None:
        return accepted.n_tokens + accepted.n_given
    tokens = known[1] if known else given.n_tokens if given else 0
    return min(tokens, step.group(sample).max_new_tokens)
