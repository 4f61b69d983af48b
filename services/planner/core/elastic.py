"""Keeps the pool at what pays, inside a step and between steps (pure).

An actor without work costs until it is needed again; let go, it costs its next start instead. So
it is let go once the time until then is clearly longer than a start, and asked for again so early
that it serves when the next policy is published. Where nothing is known yet it is held.
"""

from __future__ import annotations

import math

from services.planner.core.config import JobConfig
from services.planner.core.curves import Curves
from services.planner.core.effects import Note
from services.planner.core.fleet import Fleet
from services.planner.core.handouts import Handouts
from services.planner.core.outlook import Outlook
from services.planner.core.pen import Pen
from services.planner.core.planning.pool import Member, early, pays_to_let_go, release
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
        """A step wants so many: ask for them, let the others go."""
        self._target = actors
        self._fleet.scale(actors, self._surplus(actors))

    def _surplus(self, keep: int) -> list[str]:
        """Those that have least to lose; never one that has a sample."""
        present = self._fleet.present()
        members = [Member(a.name, a.state, len(a.out)) for a in present]
        busy = {actor.name for actor in present if actor.out}
        return [name for name in release(members, keep) if name not in busy]

    def decoding(self, step: OpenStep, slots: int) -> None:
        """While samples run: let go of actors that have nothing and will have nothing."""
        if step.states.count(WAITING) and not self._fleet.wanted:
            self._fleet.scale(1)  # whatever was planned: what waits needs somebody
        idle = self._handouts.idle()
        if not idle or self._handouts.kept:
            return
        rest = self._outlook.remaining(step, slots=slots, now=self._pen.now)
        self._let_go(idle, self._until_next(step, rest), least=1 if step.undecoded else 0)

    def spare(self, step: OpenStep, slots: int) -> int:
        """How many actors would be let go if they ran empty now."""
        rest = self._outlook.remaining(step, slots=slots, now=self._pen.now)
        pays = self._pays(self._until_next(step, rest))
        return max(0, self._fleet.wanted - max(1, self._steering.minimum)) if pays else 0

    def learning(self, step: OpenStep, *, scored: float | None, learning: float | None) -> None:
        """While no sample runs: let go of everybody, or ask for those of the next step.

        `scored`, `learning`: seconds since the last sample was decoded, or the update began.
        """
        rest = self._until_published(scored, learning)
        until = self._until_next(step, 0.0, rest)
        start = self._curves.profile().startup_seconds
        if until is None:
            return
        if until <= early(start):
            self._prewarm()
        else:
            self._let_go(self._handouts.idle(), until, least=0)

    def _prewarm(self) -> None:
        wanted = min(max(self._target, self._steering.minimum), self._steering.maximum)
        if wanted > self._fleet.wanted:
            self._pen.do(Note("actors asked for early", {"actors": wanted}))
            self._fleet.scale(wanted)

    def _let_go(self, idle: list[str], until: float | None, *, least: int) -> None:
        if not self._pays(until):
            return
        spare = self._fleet.wanted - max(least, self._steering.minimum)
        going = idle[max(0, len(idle) - max(0, spare)) :]
        if going:
            kept = self._fleet.wanted - len(going)
            self._pen.do(Note("actors let go", {"actors": len(going), "kept": kept}))
            self._fleet.scale(kept, going)

    def _pays(self, until: float | None) -> bool:
        """Whether an actor that is not needed for so long should go."""
        return pays_to_let_go(until, self._curves.profile().startup_seconds)

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
