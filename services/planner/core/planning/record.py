"""What was decided and why: a frozen record for the ledger, the report and `whatif`."""

from __future__ import annotations

from typing import Literal

import msgspec

from services.planner.core.planning.assignment import Kind


class ValueOfTime(msgspec.Struct, frozen=True, tag="value-of-time"):
    """Least money, where an hour of step time is worth `hour_worth` beside what is held."""

    hour_worth: float = 0.0


class Lambda(msgspec.Struct, frozen=True, tag="lambda"):
    """RLHFless: `weight` of time and 1 - weight of cost, both min-max normalised."""

    weight: float = 0.7


Objective = ValueOfTime | Lambda


class Candidate(msgspec.Struct, frozen=True):
    """A plan that was weighed; the smallest `score` is the best.

    seconds: until the slowest actor ends, start-up included; steady_seconds: once all are warm.
    actor_seconds: held, start-up included. dollars: of actors and of what waits for them; None
    where a price is unknown.
    """

    kind: Kind
    actors: int
    seconds: float
    steady_seconds: float
    actor_seconds: float
    dollars: float | None
    score: float


class Inputs(msgspec.Struct, frozen=True):
    """What the decision saw. `digest`: of the demand that was predicted."""

    digest: str
    samples: int
    items: int
    tokens: float
    longest: float
    minimum: int
    maximum: int
    serving: int
    loading: int
    parked: int
    objective: Objective
    profile: str


class Realised(msgspec.Struct, frozen=True):
    """What came of it."""

    seconds: float
    actor_seconds: float
    dollars: float | None = None


class Decision(msgspec.Struct, frozen=True):
    """`chosen` is None where nothing could be predicted and the pool was held as it is."""

    rule: Literal["chosen", "kept", "held", "idle"]
    actors: int
    inputs: Inputs | None
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    reason: str
    realised: Realised | None = None


def with_realised(decision: Decision, realised: Realised) -> Decision:
    """The decision joined with what came of it."""
    return msgspec.structs.replace(decision, realised=realised)


def time_error(decision: Decision) -> float | None:
    """Predicted over realised step time, minus 1; None while either is unknown."""
    if decision.chosen is None or decision.realised is None or decision.realised.seconds <= 0:
        return None
    return decision.chosen.seconds / decision.realised.seconds - 1.0


def in_words(decision: Decision) -> str:
    """For `explain`: the choice, why, and the candidates, a line each."""
    lines = [f"{decision.actors} actors: {decision.reason}"]
    for one in decision.candidates:
        mark = "*" if one == decision.chosen else " "
        money = "price unknown" if one.dollars is None else f"{one.dollars:.4f} dollars"
        lines.append(
            f"{mark} {one.kind} on {one.actors}: {one.seconds:.1f} s,"
            f" {one.actor_seconds:.1f} actor-seconds, {money}"
        )
    return "\n".join(lines)
