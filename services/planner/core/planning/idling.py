"""What becomes of an actor without work: hold it, park it, or let it go (pure).

Costs are seconds at the full price of an actor. One that is held costs until it is needed. A parked
one costs its share of the price until it is woken, then all. One that was let go costs its next
start. Both are asked for a little early, so that they serve when they are needed, and both are
weighed only where the time is clearly longer than what they take: it is a forecast.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Choice = Literal["hold", "park", "release"]

_MARGIN, _MARGIN_SECONDS = 1.5, 1.0
_EARLY, _EARLY_SECONDS = 1.25, 0.5


class Takes(NamedTuple):
    """Seconds until an actor serves, from nothing (`start`) or from its sleep (`wake`).

    `share`: of its price, while it is parked.
    """

    start: float
    wake: float
    share: float


def early(seconds: float) -> float:
    """So long before it is needed something is asked for that takes `seconds`."""
    return _EARLY * seconds + _EARLY_SECONDS


def weigh(until: float, takes: Takes) -> dict[Choice, float]:
    """Cost of each choice that is open where an actor is not needed for `until` seconds."""
    costs: dict[Choice, float] = {"hold": until}
    if until > worth(takes.wake):
        costs["park"] = _parked(until, takes)
    if until > worth(takes.start):
        costs["release"] = early(takes.start)
    return costs


def choose(until: float, takes: Takes, *, room: bool) -> Choice:
    """The cheapest; what is simpler where two cost the same. `room`: one more may be parked.

    An actor that is never needed again (`until` is infinite) is let go.
    """
    if math.isinf(until):
        return "release"
    costs = weigh(until, takes)
    if not room:
        costs.pop("park", None)
    return min(costs, key=lambda choice: costs[choice])


def outstays(until: float, takes: Takes, *, parked: float) -> bool:
    """Whether one that was parked for `parked` seconds should go: it would cost more than a start.

    What it has cost already counts. So one that nobody needs costs two starts at most, however
    long nobody needs it.
    """
    if math.isinf(until):
        return True
    whole = takes.share * parked + _parked(until, takes)
    return until > worth(takes.start) and whole > early(takes.start)


def _parked(until: float, takes: Takes) -> float:
    awake = min(until, early(takes.wake))
    return takes.share * (until - awake) + awake


def worth(seconds: float) -> float:
    """So long an actor must not be needed, at least, for something that takes `seconds` to pay."""
    return _MARGIN * seconds + _MARGIN_SECONDS


def pays_to_let_go(until: float | None, start: float) -> bool:
    """Whether an actor that is not needed for `until` seconds should go; None: nobody knows."""
    return until is not None and until > worth(start)
