"""The best that could be done with every length known, and what nobody can beat (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.profile import Profile
from services.planner.core.planning.rollout_time import replayed_seconds
from services.planner.simulate.answers import Batch
from services.planner.simulate.site import BASE, Site

Ints = npt.NDArray[np.integer[Any]]

FEW = 9
"""Up to so many samples every partition is tried."""
_MANY = 512
"""Batches up to which the cheapest second per token is looked for."""


@dataclass(frozen=True)
class Bound:
    """No policy of a step does better: seconds of decoding, and GPU-seconds of actors.

    longest: the longest answer decoded alone on the fastest actors. work: all tokens at the
    cheapest second per token, over all GPUs.
    """

    longest: float
    work: float
    gpu_seconds: float

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.longest, self.work)


def bound(site: Site, batch: Batch) -> Bound:
    """Of one step: each token costs at least what it costs in the batch that is cheapest for it.

    A sample's iterations follow each other, so that none is faster than alone; an actor is held
    for at least its longest sample.
    """
    rest = (batch.lengths - batch.done).astype(float)
    middle = (batch.prompt_tokens + batch.done + rest / 2).astype(float)
    alone, gpu_alone, each = np.inf, np.inf, np.inf
    for kind, profile in enumerate(site.profiles):
        seconds = rest * profile.tpot(1, middle)
        alone = min(alone, float(seconds.max()))
        gpu_alone = min(gpu_alone, float(seconds.max()) * site.gpus(kind))
        each = min(each, float((rest * _cheapest(profile, site)).sum()) * site.gpus(kind))
    quota = site.most * site.gpus(BASE)
    return Bound(alone, each / quota, max(gpu_alone, each))


def _cheapest(profile: Profile, site: Site) -> float:
    """Actor-seconds per token in the best batch without any context."""
    batches = np.arange(1, min(site.scenario.actors.slots, _MANY) + 1)
    return float((profile.tpot(batches, 0.0) / batches).min())


def best_partition(
    profile: Profile,
    batch: Batch,
    *,
    most: int,
    slots: int,
    of_time: float,
    of_actors: float,
) -> Ints:
    """(n,) actor of each of at most `FEW` samples: exact, by trying every partition.

    Minimised is `of_time` of the slowest actor and `of_actors` of all their seconds.
    """
    n = len(batch)
    assert n <= FEW, f"{n} samples have too many partitions"
    seconds = [0.0] * (1 << n)
    for mask in range(1, 1 << n):
        mine = [i for i in range(n) if mask >> i & 1]
        prompt = float(batch.prompt_tokens[mine].mean())
        lengths = [int(batch.lengths[i]) for i in mine]
        seconds[mask] = replayed_seconds(profile, lengths, slots=slots, prompt_tokens=prompt)

    def score(parts: Sequence[int]) -> float:
        times = [seconds[part] for part in parts]
        return of_time * max(times) + of_actors * sum(times)

    best = min(_partitions(n, most), key=score)
    actor_of = np.zeros(n, np.intp)
    for actor, part in enumerate(best):
        actor_of[[i for i in range(n) if part >> i & 1]] = actor
    return actor_of


def _partitions(n: int, most: int) -> Iterator[tuple[int, ...]]:
    """All partitions of n items into at most `most` parts, as bit masks."""

    def grow(item: int, parts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if item == n:
            yield parts
            return
        for at in range(len(parts)):
            joined = parts[at] | 1 << item
            yield from grow(item + 1, (*parts[:at], joined, *parts[at + 1 :]))
        if len(parts) < most:
            yield from grow(item + 1, (*parts, 1 << item))

    return grow(0, ())
