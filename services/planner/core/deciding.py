"""Decides how an opened step is laid out: how many actors, and who decodes what (pure).

With a forecast the candidates are weighed by the cost model; before any answer has been seen the
number of actors is held, and groups are dealt out in turn. Samples of a group stay together, so
that their prompt is computed once, unless there are few groups and splitting them pays.
"""

from __future__ import annotations

import math

import numpy as np

from ebbtide.wire import Decided, pack_ints
from services.planner.core.account import Account, dump
from services.planner.core.config import Economy, Grpo, JobConfig
from services.planner.core.crew import Crew
from services.planner.core.curves import Curves
from services.planner.core.fleet import Fleet
from services.planner.core.lengths import Lengths
from services.planner.core.planning.actor_count import Plan
from services.planner.core.planning.assignment import Assignment, equal_count, round_robin
from services.planner.core.planning.demand import from_lengths
from services.planner.core.planning.idling import worth
from services.planner.core.planning.laying import ActorModel, Laid, lay_out
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import Pool, make_pool
from services.planner.core.planning.record import Decision, Lambda, Objective, ValueOfTime
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.prefill_choice import PrefillChoice
from services.planner.core.rhythm import Rhythm
from services.planner.core.samples import OpenStep


class Decider:
    """Reads the book, the crew and the curves; changes nothing."""

    def __init__(
        self,
        *,
        config: JobConfig,
        work: Grpo,
        lengths: Lengths,
        crew: Crew,
        curves: Curves,
        fleet: Fleet,
        rhythm: Rhythm,
        prefill: PrefillChoice,
    ) -> None:
        self._config, self._work, self._lengths = config, work, lengths
        self._crew, self._curves, self._fleet, self._rhythm = crew, curves, fleet, rhythm
        self._prefill = prefill
        self._terms = terms(config)

    def decide(self, step: OpenStep, *, count: int, served: bool, now: float) -> Decided:
        """`count`: how many actors there will be where the job's number is not to be chosen.

        `served`: a prefill service is there.
        """
        pool = self._pool(count, now, last=step.plan.step >= self._config.last_step)
        forecast = self._lengths.forecast(step) if self._lengths.informed else None
        draft = self._weigh(step, forecast, pool) if forecast is not None else None
        if draft is None or draft.plan.assignment is None:
            draft = self._blind(step, pool)
        assignment = draft.plan.assignment
        assert assignment is not None, "without a forecast groups are dealt out in turn"
        return Decided(
            step.plan.step,
            draft.plan.decision.actors,
            max(assignment.actors, 1),
            pack_ints(assignment.actor_of),
            dump(self._account(draft, served=served)),
        )

    def expected(self, step: OpenStep) -> list[float]:
        """(samples,) tokens of each answer, as known when the step was opened."""
        forecast = self._lengths.forecast(step) if self._lengths.informed else None
        if forecast is None:
            return [group.max_new_tokens / 2 for group in map(step.group, range(step.size))]
        means: list[float] = forecast.mean().tolist()
        return means

    def slots(self) -> int:
        """Of one actor."""
        return max((actor.slots for actor in self._crew), default=0) or self._work.slots

    def _pool(self, count: int, now: float, *, last: bool) -> Pool:
        steering = self._config.steering
        profile = self._curves.profile()
        if not steering.elastic:
            return make_pool(
                minimum=count,
                maximum=count,
                serving=count,
                profile=profile,
                now=now,
                patience=math.inf,
            )
        after, start = self._rhythm.of("score", "learn"), profile.startup_seconds
        # As `Elastic` does: nobody goes while it is not known when the next step begins.
        patience = math.inf if after is None else worth(start)
        return make_pool(
            minimum=steering.minimum,
            maximum=steering.maximum,
            serving=len(self._fleet.present()),
            loading=self._fleet.coming(),
            parked=len(self._fleet.parked()),
            profile=profile,
            now=now,
            lead=self._rhythm.of("sync") or 0.0,
            after=0.0 if last else after or 0.0,
            patience=0.0 if last else patience,
            restart=0.0 if last else start,
        )

    def _weigh(self, step: OpenStep, forecast: Forecast, pool: Pool) -> Laid:
        return lay_out(
            forecast,
            np.asarray(step.group_of, dtype=np.intp),
            pool=pool,
            terms=self._terms,
            actor=ActorModel(
                profile=self._curves.profile(),
                slots=self.slots(),
                prompt_tokens=prompt_tokens(step),
                per_sample=self._per_sample(step),
                words=self._curves.words,
            ),
            limit=self._work.max_new_tokens,
            kinds=(self._config.steering.assignment,),
            counts=None if self._config.steering.elastic else [pool.maximum],
        )

    def _blind(self, step: OpenStep, pool: Pool) -> Laid:
        """Nothing is known: the pool is held as it is, and every actor gets as much."""
        why = "no answer has been seen yet"
        if self._config.steering.prediction == "none":
            why = "the job predicts no lengths"
        count = self._held(pool)
        together = len(step.plan.groups) >= 2 * count
        groups = np.asarray(step.group_of, dtype=np.intp) if together else None
        flat = from_lengths(np.full(step.size, self._work.max_new_tokens / 2), groups=groups)
        rule = equal_count if self._config.steering.assignment == "equal-count" else round_robin
        assignment = (
            rule(flat, count) if step.size else Assignment("round-robin", 0, np.zeros(0, np.intp))
        )
        words = f"{why}: the pool is held as it is, and every actor gets as much"
        return Laid(Plan(Decision("held", count, None, (), None, words), assignment), together)

    def _held(self, pool: Pool) -> int:
        """As many as were asked for; beside a blind plan at least one must decode."""
        current = self._fleet.wanted if self._config.steering.elastic else pool.maximum
        return max(min(max(current, pool.minimum), pool.maximum), 1)

    def _account(self, draft: Laid, *, served: bool) -> Account:
        steering = self._config.steering
        prefill, why = self._prefill.decide(there=served)
        return Account(
            decision=draft.plan.decision,
            prediction=steering.prediction,
            scaling="elastic" if steering.elastic else "static",
            together=draft.together,
            profile=self._curves.words,
            start_seconds=self._curves.profile().startup_seconds,
            other_seconds=self._rhythm.of("plan", "sync", "score", "learn"),
            wake_seconds=self._curves.profile().file.wake_seconds,
            prefill=prefill,
            prefill_reason=why,
        )

    def _per_sample(self, step: OpenStep) -> float:
        return self._curves.profile().recompute_seconds(prompt_tokens(step))


def prompt_tokens(step: OpenStep) -> float:
    """Mean over the step's samples."""
    tokens = sum(group.prompt_tokens * group.size for group in step.plan.groups)
    return tokens / max(step.size, 1)


def terms(config: JobConfig) -> Terms:
    """What is held while actors decode: the learner's ranks, a scorer, the planner."""
    economy, steering = config.economy, config.steering
    price = economy.per_hour
    held = [price.get("planner"), price.get("reward"), *[price.get("learner")] * config.learners]
    known = [one for one in held if one is not None]
    return Terms(
        objective=_objective(economy),
        actor_per_hour=price.get("decode"),
        held_per_hour=sum(known) if len(known) == len(held) else None,
        held_members=float(config.learners),
        horizon=steering.horizon,
        hysteresis=steering.hysteresis,
    )


def _objective(economy: Economy) -> Objective:
    if economy.objective == "lambda":
        return Lambda(economy.weight)
    return ValueOfTime(economy.hour_worth)
