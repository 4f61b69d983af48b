"""Unequal partitions worth weighing: the time cap that suits the objective, then every count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.demand import Demand
from services.planner.core.planning.objective import Terms, weighed
from services.planner.core.planning.partition import (
    Layers,
    Parts,
    capped,
    cheapest_by_cap,
    layered,
    parts_of,
)
from services.planner.core.planning.pool import Pool
from services.planner.core.planning.rollout_time import RolloutTime

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

_COARSE, _FINE = 24, 12
_SMALL = 16


@dataclass(frozen=True)
class Case:
    """One step to be planned."""

    demand: Demand
    time: RolloutTime
    pool: Pool
    terms: Terms

    def bounds(self) -> tuple[int, int]:
        """The fewest and the most actors that are worth weighing."""
        return self.pool.bounds(self.demand.items)


def unequal_cuts(case: Case, counts: Sequence[int]) -> Iterator[Ints]:
    """Cuts of good partitions into each of `counts` (in bounds), and into the best count.

    The cheapest under the cap that suits best; the fastest where none keeps that cap.
    """
    most = case.bounds()[1]
    parts = parts_of(case.demand, case.time, most=most)
    fastest = layered(parts, most=most, sums=False)
    cap = _best_cap(case, parts, fastest)
    cheapest = layered(capped(parts, cap), most=most, sums=True)
    for n in sorted({*counts, *_near_best(case, cheapest, cap)}):
        yield (cheapest if np.isfinite(cheapest.best[n]) else fastest).cuts(n)


def _best_cap(case: Case, parts: Parts, fastest: Layers) -> float:
    """The cap on the slowest actor's time whose cheapest partition scores best.

    First over the whole range, then closely around the best; the number of actors is free.
    """
    times = fastest.best[case.bounds()[0] :]
    times = times[np.isfinite(times)]
    caps = np.geomspace(times.min() * (1 + 1e-6), times.max() * (1 + 1e-6), _COARSE)
    at = int(_cap_scores(case, parts, caps).argmin())
    near = np.geomspace(caps[max(at - 1, 0)], caps[min(at + 1, _COARSE - 1)], _FINE)
    return float(near[_cap_scores(case, parts, near).argmin()])


def _cap_scores(case: Case, parts: Parts, caps: Floats) -> Floats:
    """The better of two: the cheapest partition, and the cheapest if every actor had to start.

    Infinite where there is none within the pool's bounds.
    """
    both = np.tile(caps, 2)
    rents = np.repeat([0.0, float(case.pool.waits[-1]) / case.terms.steps], len(caps))
    sums, counts = cheapest_by_cap(parts, both, rents)
    fits = (counts > 0) & (counts <= case.bounds()[1])
    net = np.where(fits, sums - rents * counts, 0.0)
    values = np.where(fits, _scores(case, both, net, np.maximum(counts, 1)), np.inf)
    best: Floats = values.reshape(2, -1).min(axis=0)
    return best


def _scores(case: Case, caps: Floats, sums: Floats, counts: Ints) -> Floats:
    """Of partitions into `counts` parts; the slowest takes about its cap."""
    pool, steps = case.pool, case.terms.steps
    at = np.minimum(counts, len(pool.waits)) - 1
    late = np.maximum(pool.waits[at] - pool.lead, 0.0)
    ends = case.time.not_before(case.demand, caps)
    return weighed(ends + late / steps, sums + np.cumsum(pool.waits)[at] / steps, case.terms)


def _near_best(case: Case, cheapest: Layers, cap: float) -> list[int]:
    """The count with the best score under the cap, and its neighbours where they differ much."""
    low, high = case.bounds()
    counts = np.arange(low, high + 1)
    sums = cheapest.best[low:].astype(float)
    values = _scores(case, np.full(len(counts), cap), sums, counts)
    best = low + int(np.where(np.isfinite(sums), values, np.inf).argmin())
    reach = 1 if best <= _SMALL else 0
    return list(range(max(best - reach, low), min(best + reach, high) + 1))
