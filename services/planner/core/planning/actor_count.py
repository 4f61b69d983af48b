"""How many actors decode a step, and how the samples are split over them.

Candidates (a number of actors and a rule of assignment) are predicted with the cost model and
judged by one objective:

* `value-of-time`: money. Actors cost until they are let go: when they have finished where another
  start is worth it, else until the next step; the learner and what else is held cost as long as the
  step lasts. Where a price is unknown no price is used at all: every held
  member counts alike (member-seconds), `hour_worth` is left out, and dollars stay unknown.
* `lambda` (RLHFless): weight of time against actor-seconds, min-max normalised over candidates.

Start-up is paid once and is spread over the steps of the horizon; it delays the step only as far
as it is not hidden. The pool moves only for a gain above a stated share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.assignment import (
    Assignment,
    Kind,
    assign,
    by_cuts,
    equal_cuts,
)
from services.planner.core.planning.demand import Demand
from services.planner.core.planning.objective import Predicted, Terms, scores
from services.planner.core.planning.pool import Pool
from services.planner.core.planning.record import Candidate, Decision, Inputs
from services.planner.core.planning.rollout_time import RolloutTime
from services.planner.core.planning.search import Case, unequal_cuts

Ints = npt.NDArray[np.integer[Any]]

FEW = 10
"""Up to so many counts each is weighed; of more, a geometric selection and the best ones."""


@dataclass(frozen=True)
class Plan:
    """`assignment` is None where nothing is to be decoded or nothing could be predicted."""

    decision: Decision
    assignment: Assignment | None


def plan(
    *,
    demand: Demand | None,
    time: RolloutTime | None,
    pool: Pool,
    terms: Terms,
    kinds: Sequence[Kind] = ("unequal",),
    counts: Sequence[int] | None = None,
    profile: str = "",
) -> Plan:
    """Decide. Without a forecast or a profile the pool is held as it is. `counts`: weigh these."""
    if demand is None or time is None:
        missing = "no forecast of lengths" if demand is None else "no profile of the actors"
        return _held(pool, f"{missing}: the pool is held as it is")
    inputs = _inputs(demand, pool, terms, profile)
    if not demand.items:
        words = "nothing to decode: the fewest actors that the pool allows"
        return Plan(Decision("idle", pool.minimum, inputs, (), None, words), None)
    if not pool.maximum:
        return _held(pool, "the pool allows no actor: nothing can be decoded")
    case = Case(demand, time, pool, terms)
    drafts = list(_drafts(case, kinds, _counts(case, counts)))
    judged = _judged(drafts, terms)
    best = min(range(len(drafts)), key=lambda at: judged[at].score)
    kept = _kept(judged, best, pool, terms)
    rule, words = _reason(judged[kept], judged[best], terms)
    count = max(judged[kept].actors, pool.minimum)
    decision = Decision(rule, count, inputs, tuple(judged), judged[kept], words)
    return Plan(decision, _assignment(drafts[kept], demand))


@dataclass(frozen=True)
class _Draft:
    kind: Kind
    actors: int
    cuts: Ints | None
    assignment: Assignment | None
    predicted: Predicted


def _drafts(case: Case, kinds: Sequence[Kind], counts: Sequence[int]) -> Iterator[_Draft]:
    for kind in kinds:
        if kind == "unequal":
            yield from (_by_cuts(kind, cuts, case) for cuts in unequal_cuts(case, counts))
        elif kind == "equal-count":
            yield from (_by_cuts(kind, equal_cuts(case.demand, n), case) for n in counts)
        else:
            yield from (_other(kind, n, case) for n in counts)


def thinned(low: int, high: int, current: int) -> list[int]:
    """All counts where there are few, else a geometric selection with both ends and the current."""
    if high - low < FEW:
        return list(range(low, high + 1))
    some = {round(n) for n in np.geomspace(max(low, 1), high, FEW)}
    return sorted(some | {low, high, min(max(current, low), high)})


def _by_cuts(kind: Kind, cuts: Ints, case: Case) -> _Draft:
    curve = case.time.shares(case.demand, case.demand.shares(cuts))
    return _Draft(kind, len(cuts) - 1, cuts, None, case.pool.predict(curve))


def _other(kind: Kind, n: int, case: Case) -> _Draft:
    whole = assign(kind, case.demand, n, time=case.time)
    shares = case.demand.shares_of(whole.actor_of, whole.actors)
    predicted = case.pool.predict(case.time.shares(case.demand, shares))
    return _Draft(kind, whole.actors, None, whole, predicted)


def _assignment(draft: _Draft, demand: Demand) -> Assignment:
    if draft.assignment is not None:
        return draft.assignment
    assert draft.cuts is not None, "a draft has cuts or an assignment"
    return by_cuts(draft.kind, demand, draft.cuts)


def _judged(drafts: Sequence[_Draft], terms: Terms) -> list[Candidate]:
    predicted = [draft.predicted for draft in drafts]
    return [
        Candidate(
            kind=draft.kind,
            actors=draft.actors,
            seconds=one.seconds,
            steady_seconds=one.steady_seconds,
            actor_seconds=one.actor_seconds,
            dollars=terms.dollars(one.seconds, one.actor_seconds + one.idle_seconds),
            score=score,
        )
        for draft, one, score in zip(drafts, predicted, scores(predicted, terms), strict=True)
    ]


def _kept(judged: Sequence[Candidate], best: int, pool: Pool, terms: Terms) -> int:
    """The candidate to use: the best, or the best of the present count where it gains too little."""
    present = [at for at, one in enumerate(judged) if one.actors == pool.current]
    if not present or judged[best].actors == pool.current:
        return best
    stay = min(present, key=lambda at: judged[at].score)
    return best if judged[best].score < judged[stay].score * (1 - terms.hysteresis) else stay


def _reason(
    kept: Candidate, best: Candidate, terms: Terms
) -> tuple[Literal["chosen", "kept"], str]:
    if kept == best:
        return "chosen", f"{best.kind} on {best.actors} has the best score by {terms.words}"
    return "kept", (
        f"kept at {kept.actors}: {best.actors} would gain less than"
        f" {terms.hysteresis:.0%} by {terms.words}"
    )


def _counts(case: Case, wanted: Sequence[int] | None) -> list[int]:
    low, high = case.bounds()
    if wanted is None:
        return thinned(low, high, case.pool.current)
    return sorted({min(max(n, low), high) for n in wanted})


def _held(pool: Pool, reason: str) -> Plan:
    count = min(max(pool.current, pool.minimum), pool.maximum)
    return Plan(Decision("held", count, None, (), None, reason), None)


def _inputs(demand: Demand, pool: Pool, terms: Terms, profile: str) -> Inputs:
    return Inputs(
        digest=demand.digest,
        samples=len(demand.item_of),
        items=demand.items,
        tokens=demand.tokens,
        longest=float(demand.expected[0]) if demand.items else 0.0,
        minimum=pool.minimum,
        maximum=pool.maximum,
        serving=pool.serving,
        loading=pool.loading,
        parked=pool.parked,
        objective=terms.objective,
        profile=profile,
    )
