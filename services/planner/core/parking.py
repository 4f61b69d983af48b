"""Actors that sleep: told to, woken, and what heartbeats say of it (pure).

Heartbeats are the truth: an actor that shows itself asleep without being woken is parked, whoever
told it to, and one that must show it and does not is awake.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ebbtide.wire import CommandReply, Ok, Refusal, Sleep
from services.planner.core.config import Patience
from services.planner.core.crew import UNTOLD, Actor, Crew
from services.planner.core.pen import Pen


class Parking:
    """`load`: has an actor load the wanted policy, which wakes it."""

    def __init__(
        self, *, pen: Pen, crew: Crew, patience: Patience, load: Callable[[Actor], None]
    ) -> None:
        self._pen, self._crew, self._patience, self._load = pen, crew, patience, load
        self._calls: dict[int, tuple[str, str]] = {}

    def parked(self) -> list[Actor]:
        """Those that sleep or were told to, by name."""
        return sorted(
            (a for a in self._crew if a.parked and not a.leaving and a.state != "draining"),
            key=lambda a: a.name,
        )

    def can(self, name: str) -> bool:
        """Whether the actor may be told to sleep: not soon after it refused."""
        actor = self._crew.get(name)
        return actor is not None and self._pen.now >= actor.awake_until

    def put(self, name: str) -> None:
        """Tell the actor to sleep; it gets nothing more."""
        actor = self._crew.get(name)
        if actor is None:
            return
        actor.parked, actor.parked_at = True, self._pen.now
        actor.parking = self._pen.send(name, Sleep(self._pen.fence), self._patience.submit)
        self._calls[actor.parking] = (name, actor.incarnation)

    def wake(self, actor: Actor) -> None:
        """It is needed: it loads the policy, and so wakes; one that is not asleep yet stays up."""
        actor.parked = False
        if actor.state == "asleep":
            actor.woken_at = self._pen.now
            self._load(actor)

    def replied(self, call: int, reply: CommandReply | None) -> None:
        """The answer to a Sleep; None when there was none: then heartbeats tell."""
        name, incarnation = self._calls.pop(call, ("", ""))
        actor = self._crew.get(name)
        if actor is None or actor.incarnation != incarnation or actor.parking != call:
            return
        actor.parking = 0
        match reply:
            case Ok(as_of=as_of):
                actor.parked_by = as_of
            case Refusal(code=code):
                pause = math.inf if code == "unable" else self._patience.poll
                actor.awake_until = self._pen.now + pause
                actor.parked = False
            case None:
                actor.parked_by = 0

    def hear(self, actor: Actor) -> float | None:
        """Take in its heartbeat; the seconds that it took to wake, once it has."""
        if actor.parked_at == UNTOLD:
            actor.parked_at = self._pen.now
        if actor.parked and actor.state != "asleep":
            actor.parked = bool(actor.parking) or actor.number < actor.parked_by
        if actor.woken_at is None or actor.state != "serving":
            return None
        seconds, actor.woken_at = self._pen.now - actor.woken_at, None
        return seconds
