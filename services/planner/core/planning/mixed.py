"""Two types of actors for one step: the longest on one, the bulk on the other.

The sorted items are cut once between the types; either side is then cut into parts by the same
dynamic programming as a pool of one type (B3 of the literature on sorted assignment). Exact over
caps on the slowest actor, the cut between the types, and runs of buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from services.planner.core.planning.demand import Demand, from_forecast
from services.planner.core.planning.laying import ActorModel
from services.planner.core.planning.partition import (
    Parts,
    backwards,
    capped,
    layered,
    parts_of,
    prefixes_by_cap,
)
from services.planner.core.planning.profile import Profile
from services.planner.core.planning.rollout_time import RolloutTime, rollout_time
from services.planner.core.prediction.forecast import Forecast

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

_CAPS = 32


class Kind(NamedTuple):
    """A type: at most `most` actors of `gpus` each; a second of one weighs `weight`."""

    profile: Profile
    most: int
    weight: float
    gpus: int


@dataclass(frozen=True)
class Mixed:
    """`actor_of` (samples,); `kinds`: type of each actor, 0 or 1; `seconds`: expected."""

    actor_of: Ints
    kinds: Sequence[int]
    seconds: float


class _Side(NamedTuple):
    time: RolloutTime
    parts: Parts
    sums: Floats
    counts: Ints


def plan_two(
    forecast: Forecast,
    group_of: Ints,
    *,
    kinds: Sequence[Kind],
    quota: int,
    of_time: float,
    actor: ActorModel,
    limit: float | None,
) -> Mixed:
    """The bulk on kinds[0], the longest on kinds[1], never more than `quota` GPUs in all.

    `of_time`: what a second of the step weighs, beside the weights of the types. Groups stay
    together. Raises Refused where even one actor exceeds the quota.
    """
    demand = from_forecast(forecast, limit=limit, groups=group_of)
    models = [_model(kind, demand, actor) for kind in kinds]
    tables = [parts_of(demand, m, most=k.most) for m, k in zip(models, kinds, strict=True)]
    caps = _caps(tables, [kind.most for kind in kinds])
    free = np.zeros(len(caps))
    bulk = _Side(models[0], tables[0], *prefixes_by_cap(backwards(tables[0]), caps, free))
    tail = _Side(models[1], tables[1], *prefixes_by_cap(tables[1], caps, free))
    cap, cut = _best(
        bulk, tail, kinds=kinds, quota=quota, of_time=of_time, demand=demand, caps=caps
    )
    cuts = [
        _cuts(tail, cut, caps[cap], int(tail.counts[cap, cut]), first=True),
        _cuts(bulk, cut, caps[cap], int(bulk.counts[cap, -1 - cut]), first=False),
    ]
    return _mixed(demand, cuts, float(caps[cap]))


def _model(kind: Kind, demand: Demand, actor: ActorModel) -> RolloutTime:
    return rollout_time(
        kind.profile,
        demand,
        slots=actor.slots,
        prompt_tokens=actor.prompt_tokens,
        per_sample=actor.per_sample,
    )


def _caps(tables: Sequence[Parts], most: Sequence[int]) -> Floats:
    best = [layered(t, most=n, sums=False).best[1:] for t, n in zip(tables, most, strict=True)]
    times = np.concatenate([one[np.isfinite(one)] for one in best])
    return np.geomspace(times.min() * (1 + 1e-5), times.max() * (1 + 1e-5), _CAPS)


def _best(
    bulk: _Side,
    tail: _Side,
    *,
    kinds: Sequence[Kind],
    quota: int,
    of_time: float,
    demand: Demand,
    caps: Floats,
) -> tuple[int, int]:
    """Index of the cap, and of the bucket at which the bulk begins."""
    many, few = bulk.counts[:, ::-1], tail.counts
    used = many * kinds[0].gpus + few * kinds[1].gpus
    fits = (used <= quota) & (many <= kinds[0].most) & (few <= kinds[1].most)
    ends = np.repeat(tail.time.not_before(demand, caps)[:, None], used.shape[1], axis=1)
    ends[:, 0] = bulk.time.not_before(demand, caps)
    spent = kinds[0].weight * bulk.sums[:, ::-1] + kinds[1].weight * tail.sums
    scores = np.where(fits, of_time * ends + spent, np.inf)
    cap, cut = np.unravel_index(int(scores.argmin()), scores.shape)
    if not np.isfinite(scores[cap, cut]):
        raise Refused(f"a quota of {quota} GPUs holds no actor", field="/quota")
    return int(cap), int(cut)


def _cuts(side: _Side, at: int, cap: float, actors: int, *, first: bool) -> Ints:
    """Ranks of the parts on one side of bucket `at`."""
    if not actors:
        return np.zeros(0, np.intp)
    some = slice(None, at) if first else slice(at, None)
    bounds = slice(None, at + 1) if first else slice(at, None)
    whole = side.parts
    parts = Parts(whole.edges[bounds], whole.run[bounds, bounds], whole.split[:, some], whole.ways)
    low = int(parts.edges[0])
    shifted = Parts(parts.edges - low, parts.run, parts.split, parts.ways)
    return layered(capped(shifted, cap), most=actors, sums=True).cuts(actors) + low


def _mixed(demand: Demand, cuts: Sequence[Ints], seconds: float) -> Mixed:
    """The tail's parts first, then the bulk's, both longest first."""
    widths = np.concatenate([np.diff(one) for one in cuts])
    kinds = [1] * max(len(cuts[0]) - 1, 0) + [0] * max(len(cuts[1]) - 1, 0)
    of_item = np.empty(demand.items, np.intp)
    of_item[demand.order] = np.repeat(np.arange(len(kinds)), widths)
    return Mixed(of_item[demand.item_of], kinds, seconds)
