"""Length prediction on made-up lengths of the published structure: `blend` against `ewma`.

`measure()` replays the same traces (five seeds, four epochs of 1,024 prompts with 8 samples in
steps of 128 prompts) to both. Judged is the mean absolute error of `blend` over that of `ewma`
after the first epoch. The rows "in the step" ask again when half of a step's answers have ended,
about those still running: once from what the start knew and the tokens written, once with the
ended siblings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Measured
from services.planner.core.prediction.blend import Blend
from services.planner.core.prediction.calibration import Calibration, calibrate
from services.planner.core.prediction.ewma import Ewma
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.prediction.predictor import Observation, Predictor, Queries
from services.planner.simulate.lengths import Trace, draw

SEEDS, EPOCHS, PROMPTS, SAMPLES, PER_STEP, LIMIT = range(5), 4, 1024, 8, 128, 16384


@dataclass(frozen=True)
class Step:
    """One step of a trace: `prompts` int (m,); lengths and cuts (m, samples)."""

    number: int
    trace: Trace
    epoch: int
    prompts: NDArray[np.intp]

    @property
    def lengths(self) -> NDArray[np.int32]:
        return np.asarray(self.trace.lengths[self.epoch, self.prompts].ravel())

    @property
    def censored(self) -> NDArray[np.bool_]:
        return np.asarray(self.trace.censored[self.epoch, self.prompts].ravel())

    def queries(self, done: NDArray[np.int32] | None = None, only: object = slice(None)) -> Queries:
        """All samples of the step, or those at `only`; `done` tokens of each asked sample."""
        rows = np.repeat(np.arange(len(self.prompts)), self.trace.lengths.shape[2])
        return Queries(
            step=self.number,
            prompt_ids=[self.trace.prompt_ids[p] for p in self.prompts],
            tasks=[self.trace.tasks[p] for p in self.prompts],
            prompt_tokens=self.trace.prompt_tokens[self.prompts],
            groups=np.arange(len(self.prompts), dtype=np.int32),
            rows=rows[only],  # type: ignore[call-overload]
            done=done,
        )

    def observations(self, only: NDArray[np.bool_]) -> Iterator[Observation]:
        """The answers at `only`, shortest first, as they come to an end."""
        lengths, censored, size = self.lengths, self.censored, self.trace.lengths.shape[2]
        for sample in np.argsort(lengths, kind="stable").tolist():
            if only[sample]:
                group = sample // size
                prompt = int(self.prompts[group])
                yield Observation(
                    self.trace.prompt_ids[prompt],
                    int(self.trace.prompt_tokens[prompt]),
                    self.trace.tasks[prompt],
                    self.number,
                    group,
                    int(lengths[sample]),
                    bool(censored[sample]),
                )


@dataclass(frozen=True)
class Outcome:
    """Forecasts against what came, by epoch: at the start of steps, and in the middle of them.

    `blind` and `heard` are about samples that run on when half of their step has ended: what the
    start said given their tokens, and what is said once the ended siblings have been heard.
    """

    start: Sequence[Calibration]
    blind: Sequence[Calibration]
    heard: Sequence[Calibration]


Found = tuple[Forecast, NDArray[np.int32], NDArray[np.bool_]]


def steps(trace: Trace, *, seed: int, per_step: int = PER_STEP) -> Iterator[Step]:
    """The trace's prompts in a new order each epoch."""
    random, number = np.random.default_rng(seed), 0
    for epoch in range(trace.lengths.shape[0]):
        order = random.permutation(trace.lengths.shape[1])
        for first in range(0, len(order), per_step):
            yield Step(number, trace, epoch, order[first : first + per_step])
            number += 1


def play(predictor: Predictor, trace: Trace, *, seed: int, limit: int = LIMIT) -> Outcome:
    """Replay a trace; answers come one token a tick, all from the start of their step."""
    found: dict[tuple[str, int], list[Found]] = {}
    for step in steps(trace, seed=seed):
        for name, one in zip(("start", "blind", "heard"), _play(predictor, step), strict=True):
            found.setdefault((name, step.epoch), []).append(one)
    epochs = range(trace.lengths.shape[0])
    return Outcome(
        *([_judge(found[name, e], limit) for e in epochs] for name in ("start", "blind", "heard"))
    )


def _play(predictor: Predictor, step: Step) -> tuple[Found, Found, Found]:
    start = predictor.forecast(step.queries())
    now = int(np.median(step.lengths))
    over = step.lengths <= now
    for observation in step.observations(over):
        predictor.observe(observation)
    running = np.flatnonzero(~over)
    done = np.full(len(running), now, dtype=np.int32)
    heard = predictor.forecast(step.queries(done, running)).residual(done)
    blind = start.take(running).residual(done)
    for observation in step.observations(~over):
        predictor.observe(observation)
    predictor.end_step(step.number)
    rest = step.lengths[running] - now, step.censored[running]
    return (start, step.lengths, step.censored), (blind, *rest), (heard, *rest)


def _judge(found: Sequence[Found], limit: int) -> Calibration:
    forecasts, lengths, censored = zip(*found, strict=True)
    whole = Forecast(np.concatenate([one.quantiles for one in forecasts]))
    return calibrate(whole, np.concatenate(lengths), np.concatenate(censored), limit=limit)


def measure() -> Measured:
    """Both predictors over all seeds."""
    rows: list[Sequence[object]] = []
    errors = {}
    for name, make in (("ewma", Ewma), ("blend", Blend)):
        outcomes = [play(make(limit=LIMIT), _trace(seed), seed=seed) for seed in SEEDS]
        rows += [(name, "first epoch", *_mean([o.start[0] for o in outcomes]))]
        later = [one for o in outcomes for one in o.start[1:]]
        rows += [(name, "later epochs", *_mean(later))]
        for label, pick in (("in the step, blind", "blind"), ("in the step, siblings", "heard")):
            mid = [getattr(o, pick) for o in outcomes]
            rows += [(name, label + ", first epoch", *_mean([one[0] for one in mid]))]
            rows += [(name, label + ", later", *_mean([c for one in mid for c in one[1:]]))]
        errors[name] = float(np.mean([one.mae for one in later]))
    columns = ("predictor", "asked", "MAE", "P50", "P90", "rank", "tail recall")
    return Measured(errors["blend"] / errors["ewma"], columns, rows)


def _trace(seed: int) -> Trace:
    return draw(seed=seed, prompts=PROMPTS, epochs=EPOCHS, samples=SAMPLES, limit=LIMIT)


def _mean(found: Sequence[Calibration]) -> list[float]:
    names = ("mae", "coverage_p50", "coverage_p90", "rank", "tail_recall")
    return [float(np.mean([getattr(one, name) for one in found])) for name in names]
