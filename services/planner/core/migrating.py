"""Which running samples move, asked now and then while a step decodes (pure).

The rules are in `services.planner.core.planning.migration`; here they are shown the actors as they
are. An actor for which samples wait is left out, for it has no free slot and does not run empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ebbtide.reports import MigrationReport
from services.planner.core.config import JobConfig
from services.planner.core.crew import Actor
from services.planner.core.curves import Curves
from services.planner.core.deciding import terms
from services.planner.core.effects import Note
from services.planner.core.elastic import Elastic
from services.planner.core.handouts import Handouts
from services.planner.core.outlook import Outlook, written
from services.planner.core.pen import Pen
from services.planner.core.places import Places
from services.planner.core.planning.migration import (
    MOST_AT_ONCE,
    Far,
    Move,
    Working,
    Worth,
    benefit_rule,
    global_cut,
    tau_rule,
)
from services.planner.core.planning.profile import Profile
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.samples import ACCEPTED, INVALID, VALUED, OpenStep
from services.planner.core.steering import Steering
from services.planner.core.transit import Transit

_SECONDS, _SOONEST, _PART = 1.0, 0.1, 8
"""A rule is asked once a second; while the step is young, after each such part of its time so far."""
_TRIES = 8
"""Actors that are weighed at a time,"""
_RUNNING = 8192
"""and none while more samples run: with so many it takes a tenth of a second, and can wait."""
_MARGIN = 1.0
"""Seconds of an actor that a move must gain: forecasts waver by more than nothing."""


@dataclass(frozen=True)
class Scene:
    """What a rule is shown. `total`: samples of the step.

    `spare`: actors that would be let go if they ran empty. `rest`: tokens to come, one row per
    sample in the actors' order; None where nothing is predicted.
    """

    actors: Sequence[Working]
    profile: Profile
    total: int
    spare: int
    worth: Worth
    rest: Callable[[], Forecast | None]
    far: Far


Rule = Callable[[Scene], Sequence[Move]]


def rule_of(steering: Steering) -> Rule | None:
    """The one that the job asks for; None: nothing moves."""
    match steering.migration:
        case "tau":
            return lambda scene: tau_rule(scene.actors, scene.profile, tau=steering.tau)
        case "global-cut":
            return lambda scene: global_cut(scene.actors, scene.profile, total=scene.total)
        case "benefit":
            return benefit
    assert steering.migration == "none", f"no rule is called {steering.migration}"
    return None


def benefit(scene: Scene) -> list[Move]:
    """Empty as many actors as can be let go; where none can, only what brings the end nearer."""
    few = [a for a in scene.actors if 0 < len(a.samples) <= MOST_AT_ONCE and not a.stays]
    running = sum(len(actor.samples) for actor in scene.actors)
    rest = scene.rest() if few and running <= _RUNNING else None
    if rest is None:
        return []
    worth = scene.worth if scene.spare else Worth(0.0, scene.worth.step, scene.worth.margin)
    moves = benefit_rule(
        scene.actors, rest, scene.profile, worth=worth, far=scene.far, tries=_TRIES
    )
    sources = list(dict.fromkeys(move.source for move in moves))
    kept = set(sources[: scene.spare or len(sources)])
    return [move for move in moves if move.source in kept]


def pause(decoded: float) -> float:
    """Seconds between two looks, `decoded` seconds into a step: short steps are looked at too."""
    return min(_SECONDS, max(_SOONEST, decoded / _PART))


class Migration:
    """Asks `rule` and has its moves made."""

    def __init__(
        self,
        *,
        pen: Pen,
        config: JobConfig,
        handouts: Handouts,
        transit: Transit,
        curves: Curves,
        outlook: Outlook,
        pool: Elastic,
        places: Places,
        rule: Rule | None,
    ) -> None:
        self._pen, self._handouts, self._transit, self._rule = pen, handouts, transit, rule
        self._curves, self._outlook, self._pool, self._places = curves, outlook, pool, places
        self._steering = config.steering
        of_step, of_actor = terms(config).weights()
        self._worth = Worth(actor=of_actor, step=of_step, margin=_MARGIN)
        self._opened = self._asked = pen.now

    def open(self) -> None:
        """A step begins to decode."""
        self._opened = self._pen.now

    def report(self, step: OpenStep) -> MigrationReport | None:
        """What became of the step's moves."""
        per_token = self._curves.profile().file.kv_bytes_per_token
        return self._transit.report(step, self._steering.migration, per_token)

    def decoding(self, step: OpenStep, slots: int) -> None:
        """Time passes."""
        self._transit.tick(step)
        early = self._pen.now - self._asked < pause(self._pen.now - self._opened)
        if self._rule is None or early or self._handouts.kept:
            return
        self._asked = self._pen.now
        actors = self._actors(step, slots)
        if sum(bool(actor.samples) for actor in actors) > 1:
            self._ask(self._rule, step, slots, actors)

    def _ask(self, rule: Rule, step: OpenStep, slots: int, actors: Sequence[Working]) -> None:
        samples = [sample for actor in actors for sample in actor.samples]
        scene = Scene(
            actors=actors,
            profile=self._curves.profile(),
            total=step.size,
            spare=self._pool.spare(step, slots) if self._steering.elastic else 0,
            worth=self._worth,
            rest=lambda: self._outlook.rest(step, samples),
            far=self._places.seconds,
        )
        moves = [self._with_kv(move) for move in rule(scene)]
        if moves:
            self._pen.do(Note("samples move", {"samples": len(moves), "from": moves[0].source}))
            self._transit.order(step, moves, opened=self._opened)

    def _with_kv(self, move: Move) -> Move:
        """Where no hand-over was measured KV is asked for: to try costs little, to compute more."""
        return move if self._steering.measured else move._replace(how="kv")

    def _actors(self, step: OpenStep, slots: int) -> list[Working]:
        """Samples on their way count where they go."""
        leaving, policy = self._transit.leaving(step), step.plan.policy
        there = [a for a in self._handouts.crew.working() if a.serves(policy)]
        free = [actor for actor in there if not self._handouts.queued(step, actor.name)]
        if len(free) < 2:
            return []
        ended = (ACCEPTED, VALUED, INVALID)
        done = Counter(step.actors[i] for i, state in enumerate(step.states) if state in ended)
        return [self._working(step, actor, leaving, done[actor.name], slots) for actor in free]

    def _working(
        self, step: OpenStep, actor: Actor, leaving: set[int], finished: int, slots: int
    ) -> Working:
        here = [i for i in step.held(actor.out) if i not in leaving]
        coming = self._transit.coming(step, actor.name)
        samples = (*here, *coming)
        return Working(
            name=actor.name,
            slots=actor.slots or slots,
            finished=finished,
            samples=samples,
            tokens=tuple(step.group(i).prompt_tokens + written(step, i) for i in samples),
            stays=bool(coming) or any(self._transit.rests(i) for i in here),
        )
