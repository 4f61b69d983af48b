"""What is known about the lengths of answers: a fold over the ledger, in its order (pure).

Each accepted rollout is observed once, and history takes a step's answers in when the
next one begins; so a planner that starts anew predicts exactly what its predecessor would have. Rounds count
the openings of steps: they rise even where a new attempt opens a step again, and what was seen
before is not forgotten, for it was decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ebbtide.wire import Accepted, GroupPlan, StepPlan
from services.planner.core.prediction.blend import Blend
from services.planner.core.prediction.calibration import Calibration, calibrate
from services.planner.core.prediction.ewma import Ewma
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.prediction.predictor import Observation, Predictor, Queries
from services.planner.core.samples import OpenStep

CUT_SHORT = "length"
"""The finish of an answer that the limit ended: it would have been longer."""


class Lengths:
    """`predictor` None: nothing is predicted. `seen`: answers observed so far."""

    def __init__(self, predictor: Predictor | None = None) -> None:
        self._predictor = predictor
        self._round = 0
        self._names: list[tuple[str, str]] = []
        self.seen = 0

    @property
    def informed(self) -> bool:
        """Whether a forecast rests on anything but a guess."""
        return self._predictor is not None and self.seen > 0

    def opened(self, plan: StepPlan) -> None:
        """A step begins; what came of the one before, whole or not, is history."""
        self._round += 1
        self._names = [(_prompt(group), _task(group)) for group in plan.groups]
        if self._predictor is not None:
            self._predictor.end_step(self._round - 1)

    def extended(self, groups: Sequence[GroupPlan]) -> None:
        """The step that is open has more groups."""
        self._names += [(_prompt(group), _task(group)) for group in groups]

    def ended(self, step: OpenStep, sample: int, record: Accepted) -> None:
        """The ledger has the sample's rollout."""
        if self._predictor is None:
            return
        group, number = step.group(sample), step.group_of[sample]
        prompt, task = self._names[number]
        self.seen += 1
        self._predictor.observe(
            Observation(
                prompt_id=prompt,
                prompt_tokens=group.prompt_tokens,
                task=task,
                step=self._round,
                group=number,
                length=record.n_tokens,
                censored=record.finish == CUT_SHORT,
            )
        )

    def forecast(self, step: OpenStep) -> Forecast | None:
        """Of every sample as it was when the step was opened: its siblings are not heard."""
        return self._forecast(step, np.arange(step.size), None, first=len(step.plan.groups))

    def forecast_now(
        self, step: OpenStep, samples: NDArray[np.intp], done: NDArray[np.int32]
    ) -> Forecast | None:
        """Whole lengths of these samples (n,), which have written `done` (n,) tokens by now."""
        return self._forecast(step, samples, done, first=0)

    def calibration(self, step: OpenStep) -> Calibration | None:
        """How good the forecast at the step's opening was; None before there was a history."""
        ended = [i for i, found in enumerate(step.rollouts) if found is not None]
        whole = self.forecast(step)
        if whole is None or not ended:
            return None
        records = [found for found in step.rollouts if found is not None]
        return calibrate(
            whole.take(np.array(ended, dtype=np.intp)),
            np.array([record.n_tokens for record in records], dtype=np.int32),
            np.array([record.finish == CUT_SHORT for record in records], dtype=np.bool_),
            limit=max(group.max_new_tokens for group in step.plan.groups),
        )

    def dump(self) -> bytes:
        """The predictor's whole state."""
        return self._predictor.dump() if self._predictor is not None else b""

    def _forecast(
        self,
        step: OpenStep,
        samples: NDArray[np.intp],
        done: NDArray[np.int32] | None,
        *,
        first: int,
    ) -> Forecast | None:
        """`first`: number of the first group; numbers that no answer bears have no siblings."""
        if self._predictor is None:
            return None
        groups = step.plan.groups
        queries = Queries(
            step=self._round,
            prompt_ids=[prompt for prompt, _ in self._names],
            tasks=[task for _, task in self._names],
            prompt_tokens=np.array([group.prompt_tokens for group in groups], dtype=np.int32),
            groups=np.arange(first, first + len(groups), dtype=np.int32),
            rows=np.array(step.group_of, dtype=np.intp)[samples],
            done=done,
        )
        return self._predictor.forecast(queries)


def make_lengths(prediction: str, *, limit: int, window: int = 1) -> Lengths:
    """`prediction`: blend | ewma | none; `limit`: tokens an answer may have."""
    match prediction:
        case "blend":
            return Lengths(Blend(limit=limit))
        case "ewma":
            return Lengths(Ewma(limit=limit, window=window))
    assert prediction == "none", f"no predictor is called {prediction}"
    return Lengths()


def _prompt(group: GroupPlan) -> str:
    """A prompt asked at another temperature, or with another limit, has lengths of its own."""
    return f"{group.prompt_id}@{_setting(group)}"


def _task(group: GroupPlan) -> str:
    return f"{group.task}@{_setting(group)}"


def _setting(group: GroupPlan) -> str:
    return f"{group.temperature:g}/{group.max_new_tokens}"
