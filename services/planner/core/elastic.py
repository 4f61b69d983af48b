"""Keeps the pool at what pays, inside a step and between steps (pure).

An actor without work costs until it is needed again; let go, it costs its next start instead, and
parked its share of the price and a wake (`services.planner.core.planning.idling`). It is asked for
or woken so early that it serves when the next policy is published. Where nothing is known yet it is
held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.planner.core.config import JobConfig
from services.planner.core.curves import Curves
from services.planner.core.effects import Note
from services.planner.core.fleet import Fleet
from services.planner.core.handouts import Handouts
from services.planner.core.outlook import Outlook
from services.planner.core.pen import Pen
from services.planner.core.planning.idling import Takes, choose, early, outstays
from services.planner.core.planning.pool import Member, release
from services.planner.core.rhythm import Rhythm
from services.planner.core.samples import WAITING, OpenStep


class Elastic:
    """Acts where a job says `scaling: elastic`, within the pool's bounds."""

    def __init__(
        self,
        *,
        pen: Pen,
        config: JobConfig,
        handouts: Handouts,
        fleet: Fleet,
        curves: Curves,
        outlook: Outlook,
        rhythm: Rhythm,
    ) -> None:
        self._pen, self._config, self._handouts, self._fleet = pen, config, handouts, fleet
        self._curves, self._outlook, self._rhythm = curves, outlook, rhythm
        self._steering = config.steering
        self._target = fleet.wanted

    def open(self, actors: int) -> None:
        """A step wants so many: ask for them, park the others or let them go."""
        self._target = actors
        surplus = self._surplus(actors)
        whole = self._rhythm.of("plan", "sync", "decode", "score", "learn")
        parked = self._park(surplus, whole)
        self._ask(actors, [name for name in surplus if name not in parked])

    def follow(self, actors: int) -> None:
        """An earlier planner decided so, and may have ended before it asked for them."""
        self._target = actors

    def _ask(self, wanted: int, let_go: Sequence[str] = ()) -> None:
        """Have so many awake: those that sleep are woken before others are started."""
        self._fleet.wake(wanted - self._fleet.wanted)
        self._fleet.scale(wanted, let_go)

    def _surplus(self, keep: int) -> list[str]:
        """Those that have least to lose; never one that has a sample, or is woken."""
        there = self._handouts.crew.working()
        members = [Member(a.name, a.state, len(a.out)) for a in there]
        busy = {actor.name for actor in there if actor.busy}
        return [name for name in release(members, keep) if name not in busy]

    def decoding(self, step: OpenStep, slots: int) -> None:
        """While samples run: park or let go of actors that have and will have nothing.

        Nobody goes while an environment may still ask for a further turn: that comes soon.
        """
        if step.states.count(WAITING):
            self._have_somebody()
        idle = self._handouts.idle()
        if self._handouts.kept or step.awaited or not (idle or self._fleet.parked()):
            return
        rest = self._outlook.remaining(step, slots=slots, now=self._pen.now)
        self._part(idle, self._until_next(step, rest), least=1 if step.undecoded else 0)

    def _have_somebody(self) -> None:
        """Whatever was planned: what waits needs an actor that is awake; a wish may be lost."""
        if not self._fleet.wanted:
            self._ask(1)
        elif self._handouts.crew.working() or self._fleet.wake(1):
            return
        elif not self._fleet.coming():
            self._fleet.ask_again(max(1, self._target))

    def spare(self, step: OpenStep, slots: int) -> int:
        """How many actors would be let go or parked if they ran empty now."""
        rest = self._outlook.remaining(step, slots=slots, now=self._pen.now)
        until = self._until_next(step, rest)
        spare = max(0, self._fleet.wanted - max(1, self._steering.minimum))
        if until is None or step.awaited or choose(until, self._takes(), room=True) == "hold":
            return 0
        released = choose(until, self._takes(), room=False) == "release"
        return spare if released else min(spare, self._room())

    def learning(self, step: OpenStep, *, scored: float | None, learning: float | None) -> None:
        """While no sample runs: part with everybody, or ask for those of the next step.

        `scored`, `learning`: seconds since the last sample was decoded, or the update began.
        """
        rest = self._until_published(scored, learning)
        until = self._until_next(step, 0.0, rest)
        if until is None:
            return
        self._prewarm(until)
        self._part(self._handouts.idle(), until, least=0)

    def _prewarm(self, until: float) -> None:
        """Wake those that sleep, and start what is missing beside them, each in its time."""
        wanted = min(max(self._target, self._steering.minimum), self._steering.maximum)
        takes, lacking = self._takes(), max(0, wanted - self._fleet.wanted)
        asleep = min(lacking, len(self._fleet.parked()))
        woken = asleep if until <= early(takes.wake) else 0
        started = lacking - asleep if until <= early(takes.start) else 0
        if woken or started:
            self._pen.do(Note("actors asked for early", {"started": started, "woken": woken}))
            self._fleet.wake(woken)
            self._fleet.scale(self._fleet.wanted + started)

    def _part(self, idle: list[str], until: float | None, *, least: int) -> None:
        """Park or let go of actors without work, and of parked ones that cost too much by now."""
        if until is None:
            return
        spare = max(0, self._fleet.wanted - max(least, self._steering.minimum))
        going = idle[max(0, len(idle) - spare) :]
        parked = self._park(going, until)
        pays = choose(until, self._takes(), room=False) == "release"
        awake = [name for name in going if name not in parked] if pays else []
        gone = [*awake, *self._outstaying(until)]
        if gone:
            kept = self._fleet.wanted - len(awake)
            self._pen.do(Note("actors let go", {"actors": len(gone), "kept": kept}))
            self._fleet.scale(kept, gone)

    def _park(self, names: Sequence[str], until: float | None) -> list[str]:
        """Put to sleep those for whom that is the cheapest, and there is room; returns them."""
        if until is None or choose(until, self._takes(), room=self._room() > 0) != "park":
            return []
        some = [name for name in names if self._fleet.can_park(name)][: self._room()]
        if some:
            self._pen.do(Note("actors parked", {"actors": len(some)}))
            self._fleet.park(some)
        return some

    def _room(self) -> int:
        """How many more may be parked."""
        return max(0, self._steering.parked - len(self._fleet.parked()))

    def _outstaying(self, until: float) -> list[str]:
        """Parked ones that would cost more than their next start."""
        takes, now = self._takes(), self._pen.now
        return [
            actor.name
            for actor in self._fleet.parked()
            if outstays(until, takes, parked=now - actor.parked_at)
        ]

    def _takes(self) -> Takes:
        profile = self._curves.profile()
        share = self._config.economy.parked_share
        return Takes(profile.startup_seconds, profile.file.wake_seconds, share)

    def _until_published(self, scored: float | None, learning: float | None) -> float | None:
        learn, score = self._rhythm.of("learn"), self._rhythm.of("score")
        if learn is None or score is None:
            return None
        if learning is not None:
            return max(0.0, learn - learning)
        return learn + max(0.0, score - (scored or 0.0))

    def _until_next(
        self, step: OpenStep, decode: float | None, rest: float | None = None
    ) -> float | None:
        """Seconds until a next step begins to decode; infinite after the last one."""
        if step.plan.step >= self._config.last_step:
            return math.inf
        rest = self._rhythm.of("score", "learn") if rest is None else rest
        return decode + rest if decode is not None and rest is not None else None
