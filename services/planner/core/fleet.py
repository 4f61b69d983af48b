"""The pool as the planner asks for it: how many, who may go, what a start takes (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from services.planner.core.crew import Actor, Crew
from services.planner.core.curves import Curves
from services.planner.core.effects import ScalePool
from services.planner.core.parking import Parking
from services.planner.core.pen import Pen
from services.planner.core.planning.pool import Loading

_PATIENCE = 3.0
"""An actor that was asked for counts as coming for so many usual starts,"""
_LEAST_PATIENCE = 30.0
"""and for so many seconds at least."""
_STALE_AFTER = 3.0
"""A start of so many times the usual was no start but a lack of room: it is not learned from."""


class Fleet:
    """Pods are asked for; some of them are parked, the others are `wanted` awake.

    The operator makes what is missing and ends what was let go; heartbeats say who is there.
    `replicas`: pods that the job begins with; `maximum`: pods that it may have.
    """

    def __init__(
        self,
        *,
        pen: Pen,
        crew: Crew,
        curves: Curves,
        parking: Parking,
        replicas: int,
        maximum: int,
    ) -> None:
        self._pen, self._crew, self._curves, self._parking = pen, crew, curves, parking
        self._first, self._pods, self._maximum = replicas, -1, maximum
        self._asked_at = pen.now
        self._due = 0
        self._known: set[str] = set()
        self._starting: set[str] = set()
        self._began: dict[str, float] = {}

    @property
    def wanted(self) -> int:
        """Actors that are to be awake, beside those that were let go.

        Before it has asked for any, a planner takes the pool as it finds it.
        """
        parked = len(self.parked())
        found = max(self._first, len(self._crew.working()) + parked)
        return max(0, (found if self._pods < 0 else self._pods) - parked)

    def present(self) -> list[Actor]:
        """Actors that are there, awake, and stay, by name."""
        return [actor for actor in self._crew.working() if actor.woken_at is None]

    def parked(self) -> list[Actor]:
        """Actors that sleep or were told to, by name."""
        return self._parking.parked()

    def coming(self) -> list[Loading]:
        """One for each actor that was asked for and is not there, as long as it is believed in."""
        profile, here = self._curves.profile(), self._crew.working()
        missing = max(0, self.wanted - len(here))
        found = [self._one(self._asked_at, profile.startup_seconds)] * missing
        wake = profile.file.wake_seconds
        found += [self._one(a.woken_at, wake) for a in here if a.woken_at is not None]
        return [one for one in found if self._pen.now < one.deadline]

    def _one(self, since: float, usual: float) -> Loading:
        return Loading(since + usual, since + max(_PATIENCE * usual, _LEAST_PATIENCE))

    def scale(self, wanted: int, let_go: Iterable[str] = ()) -> None:
        """Ask for `wanted` actors awake beside those that go; nothing more is given to these.

        Parked ones for whom the pool has no room beside them go too.
        """
        before = self.wanted
        for name in let_go:
            actor = self._crew.get(name)
            if actor is not None:
                actor.leaving = True
        for actor in self.parked()[max(0, self._maximum - wanted) :]:
            actor.leaving = True
        missing = max(0, wanted - len(self._crew.working()))
        if missing and wanted > before:
            self._asked_at, self._due = self._pen.now, missing
        self._pods = wanted + len(self.parked())
        going = tuple(sorted(actor.name for actor in self._crew if actor.leaving))
        self._pen.do(ScalePool(self._pods, going))

    def ask_again(self, wanted: int) -> None:
        """Nobody is there, and nobody is believed to come: what was asked for may be lost."""
        self._asked_at = self._pen.now
        self.scale(wanted)

    def can_park(self, name: str) -> bool:
        """Whether the actor may be told to sleep."""
        return self._parking.can(name)

    def park(self, names: Iterable[str]) -> None:
        """Put these to sleep: as many pods, fewer awake."""
        for name in names:
            self._parking.put(name)

    def wake(self, count: int) -> int:
        """Wake up to `count` that are parked; returns how many were."""
        woken = self.parked()[: max(0, count)]
        for actor in woken:
            self._parking.wake(actor)
        return len(woken)

    def began(self, name: str, since: float) -> None:
        """The actor's pod was started."""
        if name not in self._known:
            self._began[name] = since

    def hear(self, actor: Actor) -> None:
        """Time the start: from the asking for it until it serves, or of a first one its process's."""
        if actor.name not in self._known:
            self._known.add(actor.name)
            self._first_heard(actor.name)
        if actor.name in self._starting and actor.state == "serving":
            self._starting.discard(actor.name)
            self._timed(self._pen.now - self._asked_at)
        woke = self._parking.hear(actor)
        if woke is not None and _is_usual(woke, self._curves.profile().file.wake_seconds):
            self._curves.woke(woke)

    def _first_heard(self, name: str) -> None:
        since = self._began.pop(name, None)
        if self._due:
            self._due -= 1
            self._starting.add(name)
        elif since is not None:
            self._timed(self._pen.now - since)

    def _timed(self, seconds: float) -> None:
        if _is_usual(seconds, self._curves.profile().startup_seconds):
            self._curves.started(seconds)


def _is_usual(seconds: float, usual: float) -> bool:
    return seconds <= _STALE_AFTER * max(usual, _LEAST_PATIENCE / _STALE_AFTER)
