"""The cost report: held time of the operator joined with causes of the planner (protocol.md 11).

Held time is what is paid for. Causes explain it pod by pod; what they leave is `unattributed`,
never spread over the others. A price that is not known makes a cost unknown (None), never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from ebbtide.usage import Usage
from services.gateway.core.tally import Gains

UNATTRIBUTED = "unattributed"
PARKED = "parked"
KEYS = ("role", "actor", "pool", "capacity", "cause")
UNKNOWN = "unknown"
"""Capacity of a pool whose price does not say it."""
Place = tuple[str, str]
"""Role and actor: the pod's name, or a learner's rank, which outlives its pods."""
Spent = Mapping[tuple[str, str, str], float]
"""Seconds by (role, actor, cause)."""
SLACK = 1e-6
"""Seconds that are none: what adding up floats leaves."""


class Price(msgspec.Struct, frozen=True):
    """Of one member of a pool, an hour; `parked`: the share of it that an actor costs asleep.

    `capacity`: how the pool's nodes are sold. A pool has one price, so it has one capacity type.
    """

    per_hour: float
    parked: float = 1.0
    capacity: str = UNKNOWN

    def of(self, cause: str, seconds: float) -> float:
        """What these cost."""
        share = self.parked if cause == PARKED else 1.0
        return seconds * share * self.per_hour / 3600.0


def prices_of(spec: Mapping[str, Any]) -> dict[str, Price]:
    """By pool, as the job's spec has them."""
    return {
        price["pool"]: Price(
            price["perHour"],
            price.get("parkedShare", 1.0),
            price.get("capacityType") or UNKNOWN,
        )
        for price in spec.get("prices", ())
    }


class Window(msgspec.Struct, frozen=True):
    """From `start` to `end`, Unix seconds."""

    start: float = -inf
    end: float = inf

    def seconds(self, usage: Usage) -> float:
        """How much of the held time lies within."""
        until = usage.started_at + usage.seconds
        return max(0.0, min(until, self.end) - max(usage.started_at, self.start))


class Line(msgspec.Struct, frozen=True):
    """Seconds of one actor with one cause, and what they cost."""

    role: str
    actor: str
    pool: str
    capacity: str
    cause: str
    seconds: float
    cost: float | None


class Account(msgspec.Struct, frozen=True):
    """What was held, and what it was used for.

    Each held second is in one line. `over`: seconds that causes explain beyond what was held, by
    which those causes were cut back, for two clocks are never quite alike.
    `held` and `unpriced` in seconds, `known`: cost of what has a price.
    """

    lines: tuple[Line, ...]
    over: float
    held: float
    unpriced: float
    known: float

    @property
    def total(self) -> float | None:
        """None if some held second has no price."""
        return self.known if self.unpriced <= SLACK else None


def account(
    usages: Iterable[Usage],
    spent: Spent,
    *,
    prices: Mapping[str, Price],
    window: Window | None = None,
) -> Account:
    """Join both. `prices`: by pool."""
    held: defaultdict[Place, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for usage in usages:
        seconds = (window or Window()).seconds(usage)
        held[usage.role, actor_of(usage)][usage.pool] += seconds
    causes: defaultdict[Place, dict[str, float]] = defaultdict(dict)
    for (role, actor, cause), seconds in spent.items():
        if seconds > 0:
            causes[role, actor][cause] = seconds
    lines: list[Line] = []
    over = 0.0
    by_pool = [(pool, s) for pools in held.values() for pool, s in pools.items()]
    for place in sorted({*held, *causes}):
        pools = held.get(place) or {"": 0.0}
        caused, beyond = _fitted(causes[place], sum(pools.values()))
        over += beyond
        lines += _lines(place, pools, caused, prices)
    return Account(
        lines=tuple(lines),
        over=over,
        held=sum(seconds for _, seconds in by_pool),
        unpriced=sum(seconds for pool, seconds in by_pool if pool not in prices),
        known=sum(line.cost or 0.0 for line in lines),
    )


def _fitted(causes: Mapping[str, float], held: float) -> tuple[dict[str, float], float]:
    """Causes that add up to `held`, and by how much they were beyond it."""
    rest = held - sum(causes.values())
    if rest < 0:
        share = held / (held - rest)
        return {cause: seconds * share for cause, seconds in causes.items() if held}, -rest
    return {**causes, **({UNATTRIBUTED: rest} if rest > SLACK else {})}, 0.0


def actor_of(usage: Usage) -> str:
    """What the planner calls the pod: a learner by its rank."""
    return usage.pod.rpartition("-")[2] if usage.role == "learner" else usage.pod


def _lines(
    place: Place,
    pools: Mapping[str, float],
    causes: Mapping[str, float],
    prices: Mapping[str, Price],
) -> Iterator[Line]:
    """An actor that was held in two pools has its causes in both, by held time."""
    whole = sum(pools.values())
    for pool, seconds in sorted(pools.items()):
        share = seconds / whole if whole else 1.0 / len(pools)
        price = prices.get(pool)
        capacity = UNKNOWN if price is None else price.capacity
        for cause, caused in sorted(causes.items()):
            cost = None if price is None else price.of(cause, caused * share)
            yield Line(*place, pool, capacity, cause, caused * share, cost)


def report(
    found: Account, *, currency: str, by: Sequence[str] = ("role", "cause"), gains: Gains
) -> dict[str, Any]:
    """The report (ebbtide.api.CostReport); `by`: some of KEYS."""
    total = found.total
    return {
        "currency": currency,
        "total": total,
        "known": found.known,
        "heldSeconds": found.held,
        "unpricedSeconds": found.unpriced,
        "overAttributedSeconds": found.over,
        "byRole": {p["role"]: p["cost"] for p in grouped(found.lines, ("role",))},
        "byCause": {p["cause"]: p["cost"] for p in grouped(found.lines, ("cause",))},
        "parts": grouped(found.lines, by),
        "steps": gains.steps,
        "perStep": _per(total, gains.steps),
        "perThousandTokens": _per(total, gains.tokens / 1000.0),
        "perRewardPoint": _per(total, gains.reward),
    }


def grouped(lines: Iterable[Line], by: Sequence[str]) -> list[dict[str, Any]]:
    """Sums by some of KEYS, in order; a group with an unknown cost has none."""
    groups: defaultdict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(getattr(line, key) for key in by)].append(line)
    return [
        dict(zip(by, names, strict=True))
        | {"seconds": sum(m.seconds for m in members), "cost": _sum(m.cost for m in members)}
        for names, members in sorted(groups.items())
    ]


def _per(total: float | None, amount: float | None) -> float | None:
    """Unknown where nothing was gained: money for nothing has no price per piece."""
    return None if total is None or not amount or amount <= 0 else total / amount


def _sum(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
