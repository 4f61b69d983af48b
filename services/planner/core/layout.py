"""How the open step is laid out and the pool kept: decided once, recorded, then followed (pure)."""

from __future__ import annotations

from functools import partial

from ebbtide.reports import MigrationReport, StepReport
from ebbtide.status import PrefillStatus
from ebbtide.wire import CommandReply, Decided, Heartbeat
from services.planner.core import account
from services.planner.core.config import Grpo, JobConfig
from services.planner.core.curves import Curves
from services.planner.core.dealing import seat, shares_of, weights_of
from services.planner.core.deciding import Decider
from services.planner.core.elastic import Elastic
from services.planner.core.fleet import Fleet
from services.planner.core.handouts import Handouts
from services.planner.core.migrating import Migration, Rule
from services.planner.core.outlook import Outlook
from services.planner.core.parking import Parking
from services.planner.core.pen import Pen
from services.planner.core.places import Places
from services.planner.core.planning.placement import Labels
from services.planner.core.prefill_choice import PrefillChoice
from services.planner.core.rhythm import Rhythm
from services.planner.core.samples import OpenStep
from services.planner.core.transit import Transit

_STARTS = 2.0
"""Shares of actors that were asked for are kept for them for so many usual starts."""


class Layout:
    """`Decided` is written before anybody acts on it; a planner that takes over follows it."""

    def __init__(
        self,
        *,
        pen: Pen,
        config: JobConfig,
        work: Grpo,
        handouts: Handouts,
        transit: Transit,
        rule: Rule | None,
    ) -> None:
        self._pen, self._config, self._work, self._handouts = pen, config, work, handouts
        self._crew, self._fresh = handouts.crew, True
        fleet_of = partial(Fleet, replicas=work.replicas, maximum=config.steering.maximum)
        steering = config.steering
        self._elastic = steering.elastic
        self._curves = curves = Curves(steering.profile, measured=steering.measured)
        self._rhythm = rhythm = Rhythm()
        lengths = pen.book.lengths
        self._parking = parking = Parking(
            pen=pen, crew=self._crew, patience=config.patience, load=handouts.load
        )
        self._fleet = fleet = fleet_of(pen=pen, crew=self._crew, curves=curves, parking=parking)
        self._prefill = PrefillChoice(
            auto=steering.auto_prefill, economy=config.economy, curves=curves
        )
        self._decider = Decider(
            config=config,
            work=work,
            lengths=lengths,
            crew=self._crew,
            curves=curves,
            fleet=fleet,
            rhythm=rhythm,
            prefill=self._prefill,
        )
        outlook = Outlook(lengths=lengths, curves=curves)
        self._pool = Elastic(
            pen=pen,
            config=config,
            handouts=handouts,
            fleet=fleet,
            curves=curves,
            outlook=outlook,
            rhythm=rhythm,
        )
        self._places = Places()
        self._migration = Migration(
            pen=pen,
            config=config,
            handouts=handouts,
            transit=transit,
            curves=curves,
            outlook=outlook,
            pool=self._pool,
            places=self._places,
            rule=rule,
        )

    def hear(self, beat: Heartbeat) -> None:
        """An actor's heartbeat, after the crew has taken it in."""
        self._curves.hear(beat)
        actor = self._crew.get(beat.actor)
        if actor is not None:
            self._fleet.hear(actor)

    def replied(self, call: int, reply: CommandReply | None) -> None:
        """The answer to a command of the pool's."""
        self._parking.replied(call, reply)

    def began(self, name: str, since: float) -> None:
        """The actor's pod was started."""
        self._fleet.began(name, since)

    def stands(self, role: str, pod: str, labels: Labels) -> None:
        """Where a pod was placed."""
        self._places.put(role, pod, labels)

    def moved(self, step: OpenStep) -> MigrationReport | None:
        """What became of samples that moved in the step."""
        return self._migration.report(step)

    def open(self, step: OpenStep) -> None:
        """Decide, unless the ledger says how it was decided; then act on it."""
        if step.decided is not None:
            self._prefill.follow(account.load(step.decided.decision))
            self._pool.follow(step.decided.actors)
        self._deal(step, step.decided or self._decide(step))
        self._migration.open()
        self._fresh = False

    def extended(self, step: OpenStep) -> None:
        """The open step has more groups, dealt over the same shares."""
        self.open(step)
        if self._elastic and step.decided is not None:
            self._pool.open(step.decided.actors)

    def _decide(self, step: OpenStep) -> Decided:
        served = self._handouts.prefills.there
        decided = self._decider.decide(step, count=self._count(), served=served, now=self._pen.now)
        self._pen.write(decided)
        if self._elastic:
            self._pool.open(decided.actors)
        return decided

    def _count(self) -> int:
        """In a pool that is not the planner's: those that are there, at first those to come too."""
        there = len(self._fleet.present())
        return max(there, self._work.replicas if self._fresh else 1, 1)

    def _deal(self, step: OpenStep, decided: Decided) -> None:
        expected = self._decider.expected(step)
        shares = shares_of(step, decided, expected)
        weights = weights_of(decided, expected, self._decider.slots())
        names = self._places.nearest_first(actor.name for actor in self._fleet.present())
        seated, kept = seat(step, decided, shares, weights, names)
        start = self._curves.profile().startup_seconds if self._elastic else 0.0
        keep = max(self._config.patience.join, _STARTS * start)
        self._handouts.deal(step, seated, kept, expected=expected, keep_seconds=keep)

    def decoding(self, step: OpenStep) -> None:
        """Time passes while samples are decoded."""
        slots = self._decider.slots()
        if self._elastic:
            self._pool.decoding(step, slots)
        self._migration.decoding(step, slots)

    def learning(self, step: OpenStep, *, scored: float | None, learning: float | None) -> None:
        """Time passes while none is: seconds since the last was decoded, or the update began."""
        if self._elastic:
            self._pool.learning(step, scored=scored, learning=learning)

    def committed(self, step: OpenStep, done: StepReport, *, trained: bool) -> None:
        """A step is over."""
        self._rhythm.heard(done.phases, trained=trained)
        self._prefill.committed(step, done.prefill, done.seconds)

    @property
    def prefill(self) -> PrefillStatus | None:
        """Whether there is to be a prefill service; None: that is not the planner's to say."""
        return self._prefill.status
