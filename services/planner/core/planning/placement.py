"""Where actors stand: the heaviest group nearest to the learner, the others ever farther away.

RLHFless (2602.22718): learner and prefill share a node; decode actors follow by decreasing load at
increasing distance. Places are labels, and distances are data: measured, or the plain order of
node, topology domain and zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ebbtide.errors import Refused

Labels = Mapping[str, str]


class Level(msgspec.Struct, frozen=True):
    """Places that agree in `label` are `distance` apart (in any one unit, such as us per MB)."""

    label: str
    distance: float


class Distances(msgspec.Struct, frozen=True):
    """Levels from the nearest to the farthest; `beyond`: places that agree in none of them."""

    levels: tuple[Level, ...] = (
        Level("kubernetes.io/hostname", 0.0),
        Level("rlhf.ebbtide.dev/domain", 1.0),
        Level("topology.kubernetes.io/zone", 2.0),
    )
    beyond: float = 3.0

    def between(self, one: Labels, other: Labels) -> float:
        """By the nearest level at which both agree; a missing label agrees with nothing."""
        for level in self.levels:
            value = one.get(level.label)
            if value is not None and value == other.get(level.label):
                return level.distance
        return self.beyond


class Spot(NamedTuple):
    """An actor that is there, or a node that could take one."""

    name: str
    labels: Labels


def check(distances: Distances) -> Distances:
    """The distances, if they rise from level to level; raises Refused."""
    steps = [level.distance for level in distances.levels] + [distances.beyond]
    if any(a > b for a, b in pairwise(steps)) or steps[0] < 0:
        raise Refused(f"distances must rise from level to level, got {steps}", field="/levels")
    return distances


def by_distance(spots: Sequence[Spot], anchor: Labels, distances: Distances) -> list[Spot]:
    """Nearest to `anchor` (the learner's place) first; ties by name."""
    return sorted(spots, key=lambda spot: (distances.between(spot.labels, anchor), spot.name))


def place(
    loads: Sequence[float], spots: Sequence[Spot], anchor: Labels, distances: Distances
) -> list[str]:
    """A spot's name for each group: the heaviest gets the nearest one.

    `loads` are in any unit; equal ones keep their order. Raises Refused if spots are too few.
    """
    if len(spots) < len(loads):
        raise Refused(f"{len(loads)} groups need as many places, got {len(spots)}", field="/spots")
    near = by_distance(spots, anchor, distances)
    heavy = sorted(range(len(loads)), key=lambda group: -loads[group])
    names = dict(zip(heavy, (spot.name for spot in near), strict=False))
    return [names[group] for group in range(len(loads))]


def affinity(anchor: Labels, distances: Distances) -> list[tuple[str, str, int]]:
    """What a new actor should prefer: (label, value, weight 1..100), the nearest level first."""
    known = [level for level in distances.levels if level.label in anchor]
    return [
        (level.label, anchor[level.label], max(100 - 40 * at, 1)) for at, level in enumerate(known)
    ]
