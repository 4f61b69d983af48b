"""What a step asks of the actors: samples in order of predicted length, in at most 256 buckets.

A bucket has a distribution of lengths, not one length: `alive` and `quiet` say for every interval
of lengths how likely one of its samples still decodes. Sums of them over an actor's samples give
the expected batch and the chance that anyone is left, and so the expected maximum, with no draws.
A plan on medians would underestimate the longest answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from services.planner.core.prediction.forecast import LEVELS, Forecast, Z

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

BUCKETS = 72
INTERVALS = 56
_NEVER = -60.0
"""Log-probability that stands for impossible; sums of it stay finite."""


@dataclass(frozen=True)
class Demand:
    """Items (samples, or whole groups where siblings stay together) sorted, longest first.

    order (items,): item at each rank. expected (items,): tokens of one sample, by rank. edges (buckets + 1,): first rank of each bucket.
    counts (buckets,): samples per bucket. sizes (items,): samples of each item.
    item_of (samples,). bounds (intervals + 1,): lengths in tokens, from 0.
    alive, quiet (buckets, intervals): of one sample, the chance that it is longer than the
    interval's middle, and the logarithm of the chance that it is not.
    tokens: expected in all.
    """

    order: Ints
    expected: Floats
    edges: Ints
    counts: Floats
    sizes: Ints
    item_of: Ints
    bounds: Floats
    alive: Floats
    quiet: Floats
    tokens: float

    @property
    def items(self) -> int:
        """How many can be placed apart."""
        return len(self.order)

    @property
    def digest(self) -> str:
        """Of all that predictions are made from."""
        seen = (self.counts, self.bounds, self.alive, self.quiet)
        data = b"".join(np.ascontiguousarray(part, np.float64).tobytes() for part in seen)
        return blake2b(data, digest_size=16).hexdigest()

    def shares(self, cuts: Ints) -> Floats:
        """(parts, buckets): samples of each bucket in each part of ranks cuts[i] .. cuts[i+1]."""
        widths = np.diff(self.edges)
        inside = np.clip((cuts[:, None] - self.edges[:-1]) / widths, 0.0, 1.0)
        shares: Floats = np.diff(inside, axis=0) * self.counts
        return shares

    def shares_of(self, actor_of: Ints, actors: int) -> Floats:
        """(actors, buckets): samples of each bucket on each actor of a whole assignment."""
        rank = np.empty(self.items, np.intp)
        rank[self.order] = np.arange(self.items)
        bucket = np.searchsorted(self.edges, rank[self.item_of], side="right") - 1
        flat = np.bincount(
            actor_of * len(self.counts) + bucket, minlength=actors * len(self.counts)
        )
        return flat.reshape(actors, -1).astype(float)


def from_lengths(lengths: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> Demand:
    """The demand of known lengths (an oracle's, a trace's); exact up to `BUCKETS` items."""
    known = np.asarray(lengths, np.float32)
    if not np.isfinite(known).all() or (known < 1).any():
        raise Refused("lengths must be finite and at least 1 token", field="/lengths")
    return from_forecast(Forecast(np.repeat(known[:, None], len(LEVELS), axis=1)), groups=groups)


def from_forecast(
    forecast: Forecast,
    *,
    limit: float | None = None,
    groups: npt.ArrayLike | None = None,
    buckets: int = BUCKETS,
) -> Demand:
    """Sort and bucket `forecast`. `limit`: no answer is longer. `groups` (samples,): siblings.

    Samples are taken as independent given their forecasts; where siblings move together the
    longest answer is overestimated a little.
    """
    quantiles = forecast.quantiles
    item_of, sizes = _items(len(quantiles), groups)
    of_items = _of_items(quantiles, item_of, sizes)
    expected = of_items @ _WEIGHTS
    order = _longest_first(expected)
    ranked = of_items.take(order, axis=0)
    edges = bucket_edges(len(order), buckets)
    counts = np.add.reduceat(sizes[order], edges[:-1]).astype(float) if len(order) else np.zeros(0)
    rows = _means(ranked, edges)
    bounds = _bounds(rows, counts, limit)
    alive, quiet = _survival(rows, (bounds[:-1] + bounds[1:]) / 2)
    tokens = float(counts @ (alive @ np.diff(bounds)))
    return Demand(
        order, expected[order], edges, counts, sizes, item_of, bounds, alive, quiet, tokens
    )


def bucket_edges(items: int, buckets: int) -> Ints:
    """First ranks: single items at the long end, then ever more per bucket.

    Where to cut matters most among the longest: each of them can hold an actor by itself.
    """
    edges, k = [0], min(items, buckets)
    for i in range(1, k + 1):
        wanted = round(items * (i / k) ** 2.5)
        edges.append(min(max(edges[-1] + 1, wanted), items - (k - i)))
    return np.asarray(edges)


def _items(samples: int, groups: npt.ArrayLike | None) -> tuple[Ints, Ints]:
    if groups is None:
        return np.arange(samples), np.ones(samples, np.intp)
    _, item_of, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    return item_of, sizes


_WEIGHTS = np.asarray((0.15, 0.225, 0.25, 0.2, 0.12, 0.055), np.float32)
"""Of the quantiles in an expected length: the mass around each level. Good enough to sort by, and
far cheaper than the forecast's own mean for 65,536 samples."""


def _longest_first(expected: Floats) -> Ints:
    scale = 65535.0 / max(float(expected.max(initial=0.0)), 1.0)
    keys = 65535 - np.round(expected * scale).astype(np.int64)
    return np.argsort(keys.astype(np.uint16), kind="stable")  # a radix sort


def _of_items(quantiles: Floats, item_of: Ints, sizes: Ints) -> Floats:
    if len(sizes) == len(item_of):
        return quantiles
    columns = [np.bincount(item_of, weights=column) / sizes for column in quantiles.T]
    return np.stack(columns, axis=1)


def _means(ranked: Floats, edges: Ints) -> Floats:
    if not len(ranked):
        return ranked
    means: Floats = np.add.reduceat(ranked, edges[:-1]) / np.diff(edges)[:, None]
    return np.maximum(means, 1e-3)


def _bounds(rows: Floats, counts: Floats, limit: float | None) -> Floats:
    """At most `INTERVALS` intervals that resolve the lengths, and the tail beyond the last level."""
    if not len(rows):
        return np.asarray([0.0, 1.0])
    tail = _score_of(1 / (50 * counts))
    top = rows[:, -1] * (rows[:, -1] / rows[:, -2]) ** ((tail - Z[-1]) / (Z[-1] - Z[-2]))
    longest = min(float(np.maximum(top, rows[:, -1]).max()), limit or np.inf)
    values = np.unique(np.minimum(np.append(rows.ravel(), longest), longest))
    if len(values) > INTERVALS:
        picked = values[np.linspace(0, len(values) - 1, INTERVALS // 2).round().astype(int)]
        values = np.unique(np.append(picked, np.linspace(0, longest, INTERVALS // 2 + 1)[1:]))
    return np.append(0.0, values[values > 0])


def _score_of(chances: Floats) -> Floats:
    return np.asarray([-NormalDist().inv_cdf(min(float(c), 0.5)) for c in chances])


def _survival(rows: Floats, lengths: Floats) -> tuple[Floats, Floats]:
    """Log-normal between the levels and beyond them: the scores are linear in log-length.

    (`Forecast` itself goes on with a Pareto tail, which is careful for one sample; the longest of
    thousands would come out far too long.)
    """
    scores = _normal_scores(rows, lengths)
    grid, below = _normal_table()
    done = np.interp(scores, grid, below)
    left = np.interp(-scores, grid, below)
    return left, np.maximum(np.log(np.maximum(done, 1e-30)), _NEVER)


def _normal_scores(rows: Floats, lengths: Floats) -> Floats:
    """(buckets, intervals): in standard deviations of log-length."""
    steps = np.arange(len(LEVELS)) * 1e-9  # levels that coincide become one steep step
    knots = np.log(rows) + steps
    at = np.log(lengths)[None]
    slopes = np.diff(np.asarray(Z)) / np.maximum(np.diff(knots, axis=1), 1e-9)
    scores = Z[0] + np.minimum(at - knots[:, :1], 0.0) * slopes[:, :1]
    for m in range(len(LEVELS) - 1):
        inside = np.clip(at - knots[:, m : m + 1], 0.0, (knots[:, m + 1] - knots[:, m])[:, None])
        scores += inside * slopes[:, m : m + 1]
    result: Floats = scores + np.maximum(at - knots[:, -1:], 0.0) * slopes[:, -1:]
    return result


@lru_cache(maxsize=1)
def _normal_table() -> tuple[Floats, Floats]:
    grid = np.linspace(-10.0, 10.0, 2001)
    normal = NormalDist()
    return grid, np.asarray([normal.cdf(x) for x in grid])
