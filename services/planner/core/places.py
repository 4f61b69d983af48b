"""Where the job's pods stand, by their labels, and how far they are from each other (pure).

On one machine all are equally far, and names decide. See `services.planner.core.planning.placement`.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.planner.core.planning.placement import Distances, Labels, Spot, by_distance

_SECONDS = 1e-3
"""A unit of distance decides between targets that are equal otherwise."""


class Places:
    """`distances`: of levels that places agree in; by default their plain order."""

    def __init__(self, distances: Distances | None = None) -> None:
        self._distances = distances or Distances()
        self._labels: dict[str, Labels] = {}
        self._learner: Labels = {}

    def put(self, role: str, pod: str, labels: Labels) -> None:
        """A pod was placed; the learner is where its first rank is."""
        if role == "learner":
            self._learner = labels if pod in ("", "0") else self._learner
        else:
            self._labels[pod] = labels

    def nearest_first(self, names: Iterable[str]) -> list[str]:
        """By distance to the learner, then by name: the heaviest share goes to the first."""
        spots = [Spot(name, self._labels.get(name, {})) for name in names]
        return [spot.name for spot in by_distance(spots, self._learner, self._distances)]

    def seconds(self, one: str, other: str) -> float:
        """What the way between two actors adds to a move."""
        there, here = self._labels.get(one, {}), self._labels.get(other, {})
        return _SECONDS * self._distances.between(there, here)
