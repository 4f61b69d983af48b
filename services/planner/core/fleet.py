"""The pool as the planner asks for it: how many, who may go, what a start takes (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from services.planner.core.crew import Actor, Crew
from services.planner.core.curves import Curves
from services.planner.core.effects import ScalePool
from services.planner.core.pen import Pen
from services.planner.core.planning.pool import Loading

_PATIENCE = 3.0
"""An actor that was asked for counts as coming for so many usual starts,"""
_LEAST_PATIENCE = 30.0
"""and for so many seconds at least."""
_STALE_AFTER = 3.0
"""A start of so many times the usual was no start but a lack of room: it is not learned from."""


class Fleet:
    """`wanted`: actors asked for, beside those that were let go.

    The operator makes what is missing and ends what was let go; heartbeats say who is there.
    """

    def __init__(self, *, pen: Pen, crew: Crew, curves: Curves, wanted: int) -> None:
        self._pen, self._crew, self._curves = pen, crew, curves
        self.wanted = wanted
        self._asked_at = pen.now
        self._due = 0
        self._known: set[str] = set()
        self._starting: set[str] = set()
        self._began: dict[str, float] = {}

    def present(self) -> list[Actor]:
        """Actors that are there and stay, by name."""
        return self._crew.working()

    def coming(self) -> list[Loading]:
        """One for each actor that was asked for and is not there, as long as it is believed in."""
        start = self._curves.profile().startup_seconds
        until = self._asked_at + max(_PATIENCE * start, _LEAST_PATIENCE)
        missing = max(0, self.wanted - len(self.present()))
        one = Loading(self._asked_at + start, until)
        return [one] * missing if self._pen.now < until else []

    def scale(self, wanted: int, let_go: Iterable[str] = ()) -> None:
        """Ask for `wanted` actors beside those that go; nothing more is given to these."""
        for name in let_go:
            actor = self._crew.get(name)
            if actor is not None:
                actor.leaving = True
        missing = max(0, wanted - len(self.present()))
        if missing and wanted > self.wanted:
            self._asked_at, self._due = self._pen.now, missing
        self.wanted = wanted
        going = tuple(sorted(actor.name for actor in self._crew if actor.leaving))
        self._pen.do(ScalePool(wanted, going))

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

    def _first_heard(self, name: str) -> None:
        since = self._began.pop(name, None)
        if self._due:
            self._due -= 1
            self._starting.add(name)
        elif since is not None:
            self._timed(self._pen.now - since)

    def _timed(self, seconds: float) -> None:
        usual = max(self._curves.profile().startup_seconds, _LEAST_PATIENCE / _STALE_AFTER)
        if seconds <= _STALE_AFTER * usual:
            self._curves.started(seconds)
