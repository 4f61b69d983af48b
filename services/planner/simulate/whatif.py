"""A recorded run once more, with other actor counts, prices or objectives (pure).

Each step's answers are those that came; what was expected of them is in its decision record, and
the plan is made from that by the planner's own functions. The curve of the engine is scaled until
the recorded layouts take as long as they took; how well that fits is told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from ebbtide.profiles import ProfileFile
from ebbtide.reports import StepReport
from services.planner.core.planning.actor_count import plan
from services.planner.core.planning.assignment import Assignment, assign
from services.planner.core.planning.demand import from_forecast
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import make_pool
from services.planner.core.planning.profile import Profile, make_profile
from services.planner.core.planning.record import Objective
from services.planner.core.planning.rollout_time import rollout_time
from services.planner.core.prediction.forecast import Forecast, log_normal
from services.planner.simulate.answers import Batch
from services.planner.simulate.machine import Table
from services.planner.simulate.rollout import Layout, Seat, World

Floats = npt.NDArray[np.floating[Any]]

_Z90 = 1.281552
_HOUR = 3600.0


@dataclass(frozen=True)
class Recorded:
    """One step of the run: expected, p90, lengths (n,); what it took, in seconds."""

    step: int
    expected: Floats
    p90: Floats
    lengths: npt.NDArray[np.int64]
    prompt_tokens: float
    actors: int
    decode_seconds: float
    other_seconds: float

    def forecast(self, limit: float) -> Forecast:
        """Log-normal with the recorded mean and P90."""
        ratio = np.log(np.maximum(self.p90 / np.maximum(self.expected, 1.0), 1.0))
        sigma = _Z90 - np.sqrt(np.maximum(_Z90**2 - 2 * ratio, 0.0))
        return log_normal(np.log(np.maximum(self.p90, 1.0)) - _Z90 * sigma, sigma, limit)


class Prices(NamedTuple):
    """Dollars an hour of one actor, and of what is held beside them; None: unknown."""

    actor: float | None
    held: float | None


class Option(NamedTuple):
    """What is asked: a fixed number of actors, or an objective that chooses one each step."""

    name: str
    actors: int | None = None
    objective: Objective | None = None


class Outcome(NamedTuple):
    """Means over steps; None where a price is unknown."""

    name: str
    actors: float
    decode_seconds: float
    step_seconds: float
    actor_seconds: float
    dollars: float | None


class Replayed(NamedTuple):
    """`scale`: of the engine's curve; `error`: median of |replayed / recorded - 1| per step."""

    steps: int
    scale: float
    error: float
    prices: Prices
    recorded: Outcome
    outcomes: tuple[Outcome, ...]


def recorded_steps(reports: Sequence[StepReport]) -> list[Recorded]:
    """The training steps whose answers and expectations were recorded; raises Refused if none."""
    found = [one for one in map(_recorded, reports) if one is not None]
    if not found:
        raise Refused(
            "no step of this job has a decision record with lengths: it predicts none, or none"
            " is committed after the first"
        )
    return found


def _recorded(report: StepReport) -> Recorded | None:
    decision = report.decision
    if decision is None or not decision.lengths or report.phases.decode <= 0:
        return None
    points = decision.lengths
    whole = max(decision.samples, len(points))
    picked = np.arange(whole) % len(points)  # up to 200 points stand for all answers
    lengths = np.asarray([max(p.realised, 1) for p in points])[picked]
    working = sum(actor.samples > 0 for actor in report.actors)
    return Recorded(
        step=report.step,
        expected=np.asarray([max(p.expected, 1.0) for p in points])[picked],
        p90=np.asarray([max(p.p90, 1.0) for p in points])[picked],
        lengths=lengths,
        prompt_tokens=report.tokens.prompt / max(report.groups.expected, 1),
        actors=max(working, 1),
        decode_seconds=report.phases.decode,
        other_seconds=max(report.seconds - report.phases.decode, 0.0),
    )


def recorded_prices(reports: Sequence[StepReport]) -> Prices:
    """From the run's own cost records."""
    entries = [entry for report in reports for entry in report.cost.entries]
    actors = [e for e in entries if e.role == "decode"]
    others = [e for e in entries if e.role not in ("decode", "prefill")]
    seconds = sum(report.seconds for report in reports)
    return Prices(
        _rate([e.cost for e in actors], sum(e.seconds for e in actors)),
        _rate([e.cost for e in others], seconds),
    )


def _rate(costs: Sequence[float | None], seconds: float) -> float | None:
    known = [cost for cost in costs if cost is not None]
    if not costs or len(known) < len(costs) or seconds <= 0:
        return None
    return sum(known) / seconds * _HOUR


def replay(
    steps: Sequence[Recorded],
    curve: ProfileFile,
    *,
    slots: int,
    limit: int,
    prices: Prices,
    options: Sequence[Option],
    most: int,
) -> Replayed:
    """Every option over all steps. `most`: actors that an objective may choose."""
    before = [_decoded(make_profile(curve), one, one.actors, slots, limit)[0] for one in steps]
    scale = statistics.median(one.decode_seconds / s for one, s in zip(steps, before, strict=True))
    rows = tuple(tuple(s * scale for s in row) for row in curve.seconds)
    profile = make_profile(msgspec.structs.replace(curve, seconds=rows))
    place = _Place(profile, slots, limit, prices, most)
    again = [_decoded(profile, one, one.actors, slots, limit)[0] for one in steps]
    errors = [abs(s / one.decode_seconds - 1) for one, s in zip(steps, again, strict=True)]
    same = Option("as recorded")
    return Replayed(
        len(steps),
        scale,
        statistics.median(errors),
        prices,
        place.outcome(same, steps),
        tuple(place.outcome(option, steps) for option in options),
    )


@dataclass(frozen=True)
class _Place:
    profile: Profile
    slots: int
    limit: int
    prices: Prices
    most: int

    def outcome(self, option: Option, steps: Sequence[Recorded]) -> Outcome:
        """Means over the steps under this option."""
        counts = [self._count(option, one) for one in steps]
        found = [
            _decoded(self.profile, one, n, self.slots, self.limit)
            for one, n in zip(steps, counts, strict=True)
        ]
        decode = statistics.fmean(seconds for seconds, _ in found)
        held = statistics.fmean(busy for _, busy in found)
        whole = decode + statistics.fmean(one.other_seconds for one in steps)
        return Outcome(
            option.name, statistics.fmean(counts), decode, whole, held, self._dollars(held, whole)
        )

    def _dollars(self, held: float, whole: float) -> float | None:
        if self.prices.actor is None or self.prices.held is None:
            return None
        return (held * self.prices.actor + whole * self.prices.held) / _HOUR

    def _count(self, option: Option, one: Recorded) -> int:
        if option.objective is None:
            return min(option.actors or one.actors, len(one.lengths))
        demand = from_forecast(one.forecast(self.limit), limit=self.limit)
        terms = Terms(option.objective, self.prices.actor, self.prices.held, hysteresis=0.0)
        pool = make_pool(
            minimum=1, maximum=self.most, serving=self.most, profile=self.profile, now=0.0
        )
        model = rollout_time(
            self.profile, demand, slots=self.slots, prompt_tokens=one.prompt_tokens
        )
        return plan(demand=demand, time=model, pool=pool, terms=terms).decision.actors


def _decoded(
    profile: Profile, one: Recorded, actors: int, slots: int, limit: int
) -> tuple[float, float]:
    """Seconds of decoding and actor-seconds: planned by what was expected, run as it came."""
    n = len(one.lengths)
    forecast = one.forecast(limit)
    demand = from_forecast(forecast, limit=limit)
    model = rollout_time(profile, demand, slots=slots, prompt_tokens=one.prompt_tokens)
    split: Assignment = assign("unequal", demand, actors, time=model)
    batch = Batch(
        number=one.step,
        prompts=np.arange(n),
        group=np.arange(n),
        lengths=one.lengths,
        cut=np.zeros(n, bool),
        prompt_tokens=np.full(n, round(one.prompt_tokens)),
        done=np.zeros(n, np.int64),
    )
    rank = np.empty(n, np.intp)
    rank[np.argsort(-forecast.mean(), kind="stable")] = np.arange(n)
    layout = Layout(split.actor_of, [Seat(0)] * split.actors, rank)
    world = World(
        batch, layout, [Table(profile, slots)], cache="engine", pause=0.0, hear=lambda _: None
    )
    rollout = world.run()
    return rollout.seconds, sum(actor.machine.last for actor in rollout.actors)


def in_words(found: Replayed) -> str:
    """A table for people, and how far it can be trusted."""
    heads = (
        "option",
        "actors",
        "decode s",
        "step s",
        "actor-s",
        "$/step",
        "of recorded: time",
        "cost",
    )
    rows = [heads, *(_row(one, found.recorded) for one in (found.recorded, *found.outcomes))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    lines.append(
        f"{found.steps} steps; the engine's curve was scaled by {found.scale:.3g}, then the recorded"
        f" decode times are met within {found.error:.0%} (median)"
    )
    return "\n".join(lines)


def _row(one: Outcome, beside: Outcome) -> tuple[str, ...]:
    priced = one.dollars is not None and bool(beside.dollars)
    cost = (
        (one.dollars or 0) / (beside.dollars or 1)
        if priced
        else one.actor_seconds / beside.actor_seconds
    )
    return (
        one.name,
        f"{one.actors:.1f}",
        f"{one.decode_seconds:.2f}",
        f"{one.step_seconds:.2f}",
        f"{one.actor_seconds:.1f}",
        "unknown" if one.dollars is None else f"{one.dollars:.5f}",
        f"{one.step_seconds / beside.step_seconds:.3f}",
        f"{cost:.3f}" if math.isfinite(cost) else "unknown",
    )
