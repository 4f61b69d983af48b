"""Who decodes what: every sample on exactly one actor, by one of five rules.

All take a `Demand`, whose items are single samples or, where siblings stay together, groups. No
rule uses more actors than there are items. Actor 0 has the longest samples where there is an order.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from services.planner.core.planning.demand import Demand
from services.planner.core.planning.partition import layered, parts_of
from services.planner.core.planning.rollout_time import RolloutTime

Ints = npt.NDArray[np.integer[Any]]

Kind = Literal["equal-count", "unequal", "lpt", "round-robin", "top-k"]
KINDS: tuple[Kind, ...] = ("equal-count", "unequal", "lpt", "round-robin", "top-k")


@dataclass(frozen=True)
class Assignment:
    """`actor_of` (samples,): 0 .. actors - 1."""

    kind: Kind
    actors: int
    actor_of: Ints

    def samples(self, actor: int) -> Ints:
        """Those of one actor, in the order of their numbers."""
        return np.flatnonzero(self.actor_of == actor)


def assign(kind: Kind, demand: Demand, actors: int, *, time: RolloutTime) -> Assignment:
    """By rule `kind`; `time` is the cost model of those that need one."""
    match kind:
        case "equal-count":
            return equal_count(demand, actors)
        case "unequal":
            return unequal(demand, actors, time=time)
        case "lpt":
            return lpt(demand, actors)
        case "round-robin":
            return round_robin(demand, actors)
        case "top-k":
            return top_k_isolation(demand, actors, time=time)


def equal_count(demand: Demand, actors: int) -> Assignment:
    """RLHFless (2602.22718): sorted by prediction, cut into groups of equal count."""
    return by_cuts("equal-count", demand, equal_cuts(demand, actors))


def unequal(demand: Demand, actors: int, *, time: RolloutTime) -> Assignment:
    """Sorted, cut where the slowest actor is fastest and then the sum of times smallest."""
    n = _usable(demand, actors)
    if not n:
        return Assignment("unequal", 0, np.zeros(0, np.intp))
    fastest = layered(parts_of(demand, time, most=n), most=n, sums=False)
    return by_cuts("unequal", demand, fastest.cuts(n))


def lpt(demand: Demand, actors: int) -> Assignment:
    """Longest first, each item to the actor with the fewest expected tokens."""
    n = _usable(demand, actors)
    loads = [(0.0, actor) for actor in range(n)]
    ranked = []
    for tokens in (demand.expected * demand.sizes[demand.order]).tolist():
        load, actor = loads[0]
        ranked.append(actor)
        heapq.heapreplace(loads, (load + tokens, actor))
    return _by_rank("lpt", demand, n, np.asarray(ranked, np.intp))


def round_robin(demand: Demand, actors: int) -> Assignment:
    """Items in the order of their numbers, dealt out in turn; no prediction is used."""
    n = _usable(demand, actors)
    return Assignment("round-robin", n, demand.item_of % max(n, 1))


def top_k_isolation(demand: Demand, actors: int, *, time: RolloutTime) -> Assignment:
    """TailSieve: the k longest on one actor, the others dealt out over the rest; the best k."""
    n = _usable(demand, actors)
    ranks = np.arange(demand.items)
    k = _best_k(demand, n, time) if n > 1 else 0
    ranked = np.where(ranks < k, 0, 1 + ranks % max(n - 1, 1)) if k else ranks % max(n, 1)
    return _by_rank("top-k", demand, n, ranked)


def equal_cuts(demand: Demand, actors: int) -> Ints:
    """Ranks where groups of equal count begin and end."""
    n = _usable(demand, actors)
    return np.arange(n + 1) * demand.items // max(n, 1)


def by_cuts(kind: Kind, demand: Demand, cuts: Ints) -> Assignment:
    """Actor a has the ranks cuts[a] .. cuts[a + 1] - 1."""
    ranked = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    return _by_rank(kind, demand, len(cuts) - 1, ranked)


def _by_rank(kind: Kind, demand: Demand, actors: int, ranked: Ints) -> Assignment:
    of_item = np.empty(demand.items, np.intp)
    of_item[demand.order] = ranked
    return Assignment(kind, actors, of_item[demand.item_of])


def _best_k(demand: Demand, actors: int, time: RolloutTime) -> int:
    """Of the ranks where a bucket ends (and the rest has an item per actor).

    The cheapest of those within 4 % of the fastest.
    """
    ends = demand.edges[(demand.edges > 0) & (demand.edges <= demand.items - (actors - 1))]
    cuts = [np.asarray([0, k, demand.items]) for k in ends]
    shares = np.stack([demand.shares(cut) for cut in cuts])
    shares[:, 1] /= actors - 1
    alive, quiet = shares @ demand.alive, shares @ demand.quiet
    seconds = time.seconds(alive, quiet)
    slowest, held = seconds.max(axis=1), seconds @ np.asarray([1.0, actors - 1.0])
    return int(ends[np.where(slowest <= 1.04 * slowest.min(), held, np.inf).argmin()])


def _usable(demand: Demand, actors: int) -> int:
    if actors < 1:
        raise Refused(f"an assignment needs an actor, got {actors}", field="/actors")
    return min(actors, demand.items)
