"""Cut sorted samples into contiguous parts of unequal size: dynamic programming on the cost model.

Adding a long sample to an actor costs its own latency, adding a short one to the same actor almost
nothing; so the few longest get actors of their own and the bulk shares some (TailSieve; B1 of the
literature on sorted assignment). A part is a run of buckets, or an even split of one bucket.
Times are expected seconds per actor; an actor is released when it has finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.demand import Demand
from services.planner.core.planning.rollout_time import RolloutTime

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

_SPLITS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Parts:
    """Expected seconds of every possible part.

    run (K+1, K+1): of buckets i..j-1 on one actor; infinite where j <= i.
    split (splits, K): of an even split of one bucket, each of `ways` parts.
    """

    edges: Ints
    run: Floats
    split: Floats
    ways: Ints

    @property
    def buckets(self) -> int:
        """K."""
        return len(self.edges) - 1


@dataclass(frozen=True)
class Layers:
    """The best partitions for every number of actors.

    values (most + 1, K + 1): of the first j buckets on exactly n actors, where the parts' seconds
    are joined by `join` (their sum, or the largest); infinite where there is none.
    split (splits, K): what an even split of a bucket adds, joined in the same way.
    """

    parts: Parts
    join: np.ufunc
    values: Floats
    split: Floats

    @property
    def best(self) -> Floats:
        """(most + 1,) of all buckets, by the number of actors."""
        totals: Floats = self.values[:, -1]
        return totals

    def cuts(self, actors: int) -> Ints:
        """Ranks (actors + 1,) of the best partition into so many parts."""
        edges = self.parts.edges
        cuts, n, j = [int(edges[-1])], actors, self.parts.buckets
        while n:
            ways, i = self._last(n, j)
            first, last = int(edges[i]), int(edges[j])
            cuts += [first + (last - first) * m // ways for m in range(ways - 1, -1, -1)]
            n, j = n - ways, i
        assert j == 0, "a partition covers every bucket"
        return np.asarray(cuts[::-1])

    def _last(self, n: int, j: int) -> tuple[int, int]:
        """How many actors share the last part, and its first bucket."""
        totals = self.join(self.values[n - 1, :j], self.parts.run[:j, j])
        i = int(totals.argmin())
        ways = self.parts.ways[: self.parts.ways.searchsorted(n, side="right")]
        alternatives = self.join(self.values[n - ways, j - 1], self.split[: len(ways), j - 1])
        if len(ways) and alternatives.min() < totals[i]:
            return int(ways[alternatives.argmin()]), j - 1
        return 1, i


def parts_of(demand: Demand, time: RolloutTime, *, most: int) -> Parts:
    """All parts of `demand`, for up to `most` actors."""
    time = time.single()
    alive = (demand.alive * demand.counts[:, None]).astype(np.float32)
    quiet = (demand.quiet * demand.counts[:, None]).astype(np.float32)
    k = len(alive)
    run = np.full((k + 1, k + 1), np.inf, np.float32)
    for some in np.array_split(np.arange(k), max(k // 16, 1)):
        first, last = np.concatenate(
            [np.stack([np.full(k - i, i), np.arange(i, k)]) for i in some], 1
        )
        run[first, last + 1] = time.seconds(_summed(alive, some), _summed(quiet, some))
    ways = np.asarray([m for m in _SPLITS if m <= most], np.intp)
    widths = np.diff(demand.edges)
    split = np.full((len(ways), k), np.inf, np.float32)
    for row, m in enumerate(ways):
        wide = widths >= m
        split[row, wide] = time.seconds(alive[wide] / m, quiet[wide] / m)
    return Parts(demand.edges, run, split, ways)


def layered(parts: Parts, *, most: int, sums: bool) -> Layers:
    """The best partition into exactly n parts, for all n up to `most`.

    Best is the smallest sum of their seconds, or the smallest largest one. Exact over runs of
    buckets and even splits of one bucket.
    """
    join: np.ufunc = np.add if sums else np.maximum
    split = _joined(parts, join)
    values = np.full((most + 1, parts.buckets + 1), np.inf, np.float32)
    values[0, 0] = 0.0
    work = np.empty_like(parts.run)
    allowed = np.searchsorted(parts.ways, np.arange(most + 1), side="right")
    for n in range(1, most + 1):
        join(values[n - 1][:, None], parts.run, out=work)
        np.minimum.reduce(work, axis=0, out=values[n])
        if rows := allowed[n]:
            others = join(values[n - parts.ways[:rows], :-1], split[:rows])
            np.minimum(values[n, 1:], np.minimum.reduce(others), out=values[n, 1:])
    return Layers(parts, join, values, split)


def cheapest_by_cap(parts: Parts, caps: Floats, rents: Floats) -> tuple[Floats, Ints]:
    """The smallest sum of seconds under each cap on the largest, and its number of actors.

    rents (caps,): seconds more per actor. The number is free; infinite and 0 where there is no
    partition.
    """
    sums, actors = prefixes_by_cap(parts, caps, rents)
    return sums[:, -1], np.where(np.isfinite(sums[:, -1]), actors[:, -1], 0)


def prefixes_by_cap(parts: Parts, caps: Floats, rents: Floats) -> tuple[Floats, Ints]:
    """The same of the first j buckets for every j: (caps, K + 1) sums and numbers of actors."""
    k = parts.buckets
    sums, actors = np.full((len(caps), k + 1), np.inf), np.zeros((len(caps), k + 1), np.intp)
    sums[:, 0] = 0.0
    split, split_ways = _cheapest_split(parts, caps, rents)
    rows, limits, each = np.arange(len(caps)), caps[:, None], rents[:, None]
    for j in range(1, k + 1):
        run = parts.run[:j, j]
        totals = sums[:, :j] + np.where(run <= limits, run + each, np.inf)
        first = totals.argmin(axis=1)
        sums[:, j], actors[:, j] = totals[rows, first], actors[rows, first] + 1
        other = sums[:, j - 1] + split[:, j - 1]
        better = other < sums[:, j]
        sums[better, j] = other[better]
        actors[better, j] = actors[better, j - 1] + split_ways[better, j - 1]
    return sums, actors


def backwards(parts: Parts) -> Parts:
    """The same parts with the shortest bucket first; its edges are not meant."""
    return Parts(parts.edges, parts.run[::-1, ::-1].T, parts.split[:, ::-1], parts.ways)


def _summed(values: Floats, firsts: Ints) -> Floats:
    """Sums over the runs of rows that begin at each of `firsts`: one row per run."""
    return np.concatenate([np.cumsum(values[i:], axis=0) for i in firsts])


def capped(parts: Parts, cap: float) -> Parts:
    """The parts that take at most `cap` seconds (and a rounding more)."""
    limit, none = np.float32(cap * (1 + 1e-6)), np.float32(np.inf)
    run = np.where(parts.run <= limit, parts.run, none)
    split = np.where(parts.split <= limit, parts.split, none)
    return Parts(parts.edges, run, split, parts.ways)


def _joined(parts: Parts, join: np.ufunc) -> Floats:
    if join is np.maximum:
        return parts.split
    total: Floats = parts.split * parts.ways[:, None].astype(np.float32)
    return total


def _cheapest_split(parts: Parts, caps: Floats, rents: Floats) -> tuple[Floats, Ints]:
    """(caps, K): what the best split of each bucket costs under each cap, and into how many."""
    shape = (len(caps), parts.buckets)
    if not len(parts.ways):
        return np.full(shape, np.inf), np.zeros(shape, np.intp)
    costs = (parts.split + rents[:, None, None]) * parts.ways[:, None]
    costs = np.where(parts.split <= caps[:, None, None], costs, np.inf)
    best = costs.argmin(axis=1)
    return np.take_along_axis(costs, best[:, None], axis=1)[:, 0], parts.ways[best]
