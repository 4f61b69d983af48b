"""The planner's core: `step(event, now) -> effects` (pure; protocol.md 12).

Each event is taken in by the part that it concerns, then the job's course moves as far as what
is known allows. The core owns its state and changes it in place; all that must outlive it goes
through the ledger.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ebbtide.errors import Fenced
from ebbtide.reports import Cause
from ebbtide.status import CostStatus, PolicyStatus, PrefillStatus
from ebbtide.wire import (
    Beat,
    CommandReply,
    Heartbeat,
    Learned,
    LearnerBeat,
    LearnerReply,
    Ok,
    PrefillBeat,
    Refusal,
    RewardBeat,
    Saved,
    Working,
)
from services.planner.core.book import Book
from services.planner.core.config import Data, Grpo, JobConfig
from services.planner.core.cost import Meter, actor_cause, learner_cause
from services.planner.core.counting import CountMeter
from services.planner.core.course import ENDED, Course
from services.planner.core.crew import Actor
from services.planner.core.effects import Effect, Note
from services.planner.core.events import (
    OUTLIVING,
    Event,
    Facts,
    Heard,
    ManifestCommitted,
    PodsGone,
    PodStarted,
    PromptsLoaded,
    PromptsLost,
    Replied,
    Suspend,
    Tick,
)
from services.planner.core.handouts import Handouts
from services.planner.core.intake import Intake
from services.planner.core.layout import Layout
from services.planner.core.migrating import Rule, rule_of
from services.planner.core.pen import Pen
from services.planner.core.prefills import PrefillMeter, prefill_cause
from services.planner.core.progress import Standing, cost_status, policy_status, standing
from services.planner.core.samples import OpenStep
from services.planner.core.scoring import ScoringDesk
from services.planner.core.training import Training
from services.planner.core.transit import Transit

_LAST_SAMPLES = 16


class Planner:
    """`book`: the replayed ledger, this planner's own Epoch included. `pod`: its name, for cost.

    `rule`: which samples move while they run; None: the one that the job asks for.
    """

    def __init__(
        self,
        *,
        config: JobConfig,
        data: Data,
        book: Book,
        pod: str,
        now: float,
        rule: Rule | None = None,
    ) -> None:
        work, patience = config.work, config.patience
        grpo = work if isinstance(work, Grpo) else None
        self._config, self._pod, self._since = config, pod, now
        self._warning, self._pen = data.warning, (pen := Pen(book=book, now=now))
        self._meter, self._prefill_meter = Meter(), PrefillMeter(takes_over=book.epoch > 1)
        self._counts = CountMeter(takes_over=book.epoch > 1)
        self._scoring = ScoringDesk(
            tries=grpo.score_tries if grpo else 1,
            deadline=config.deadlines.score,
            idle=patience.rescore,
            grace=patience.lease,
        )
        self._handouts = Handouts(
            pen=pen, config=config, slots=grpo.slots if grpo else 1, stop_ids=data.train.stop_ids
        )
        transit = Transit(pen=pen, handouts=self._handouts)
        self._intake = Intake(
            pen=pen,
            handouts=self._handouts,
            transit=transit,
            scoring=self._scoring,
            meter=self._meter,
        )
        self._training = Training(pen=pen, config=config, data=data)
        self._layout = (
            Layout(
                pen=pen,
                config=config,
                work=grpo,
                handouts=self._handouts,
                transit=transit,
                rule=rule or rule_of(config.steering),
            )
            if grpo
            else None
        )
        self._course = Course(
            pen=pen,
            config=config,
            data=data,
            handouts=self._handouts,
            intake=self._intake,
            scoring=self._scoring,
            training=self._training,
            meter=self._meter,
            layout=self._layout,
            prefill_meter=self._prefill_meter,
            counts=self._counts,
        )
        self._course.begin()

    @property
    def ended(self) -> bool:
        """The job is over; the last effects are out."""
        return self._course.phase == ENDED

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; returns what is to be done, in order.

        Raises Fenced when a newer planner or attempt exists: the process must end.
        """
        self._pen.move(now)
        if not self.ended:
            self._take(event)
            self._course.advance()
        self._handouts.settling.flush(at_once=self.ended)
        return self._pen.taken()

    @property
    def book(self) -> Book:
        """What the ledger says so far; for looking only."""
        return self._pen.book

    @property
    def hurried(self) -> bool:
        """Whether so little is left to decode that the step may wait for any next record."""
        step = self._pen.book.open
        return step is None or step.undecoded <= _LAST_SAMPLES

    @property
    def progress_at(self) -> float | None:
        """When the job last got further; None: not since this planner began."""
        return self._pen.progress_at

    @property
    def suspended(self) -> bool:
        """All that should outlive the pods is saved."""
        return self._course.suspended

    def standing(self) -> Standing:
        """How far the job is, for its status."""
        return standing(
            config=self._config,
            book=self._pen.book,
            course=self._course,
            training=self._training,
            crew=self._handouts.crew,
            warning=self._warning,
        )

    def policy_status(self) -> PolicyStatus | None:
        """The policy of the step under way, for the status."""
        return policy_status(self._pen.book)

    def prefill_status(self) -> PrefillStatus | None:
        """Whether there is to be a prefill service; None: that is not the planner's to say."""
        return self._layout.prefill if self._layout is not None else None

    def cost_status(self) -> CostStatus:
        """Money so far, for the status."""
        open_seconds = self._meter.open_seconds(self._pen.now)
        return cost_status(self._config, self._pen.book, open_seconds)

    def _take(self, event: Event) -> None:
        match event:
            case Facts():
                self._intake.take(event)
            case Heard(beat=beat):
                self._hear(beat)
            case Replied(call=call, reply=reply):
                self._replied(call, reply)
            case PromptsLoaded() | PromptsLost():
                self._read(event)
            case ManifestCommitted():
                self._training.committed(event)
            case PodsGone(names=names):
                self._pods_gone(names)
            case PodStarted():
                self._started(event)
            case Suspend():
                self._course.suspend()
            case Tick(connected=connected):
                self._pen.connected = connected
                self._tick()

    def _read(self, event: PromptsLoaded | PromptsLost) -> None:
        if isinstance(event, PromptsLoaded):
            self._course.loaded(event)
        else:
            said = f"the prepared prompts are gone: {event.why}"
            self._training.failure = ("DataLost", said)

    def _pods_gone(self, names: Sequence[str]) -> None:
        self._mourn([a for a in map(self._handouts.gone, names) if a])
        for role, name in itertools.product(OUTLIVING, names):  # one that was never heard too
            self._meter.stop(role, name, self._pen.now)

    def _started(self, event: PodStarted) -> None:
        """What an earlier planner has heard is accounted for already."""
        if self._layout is not None:
            self._layout.stands(event.role, event.pod, dict(event.labels))
        if self._is_new(event):
            self._meter.began(event.role, event.pod, event.since)
            if event.role == "decode" and self._layout is not None:
                self._layout.began(event.pod, event.since)

    def _is_new(self, event: PodStarted) -> bool:
        """Actors and services outlive planners: only the first planner knows the early ones."""
        book = self._pen.book
        if event.role in OUTLIVING:
            return book.epoch == 1 or event.since >= self._since
        return event.role == "planner" or book.begins

    # --- beats --------------------------------------------------------------------------------------

    def _hear(self, beat: Beat) -> None:
        match beat:
            case Heartbeat():
                self._hear_actor(beat)
            case LearnerBeat():
                self._training.hear(beat)
                for rank in range(self._config.ranks):
                    self._meter.mark("learner", str(rank), learner_cause(beat), self._pen.now)
            case PrefillBeat():
                self._hear_prefill(beat)
            case RewardBeat():
                self._scoring.hear(beat, self._pen.reachable)
                cause: Cause = "busy" if beat.busy else "idle"
                self._meter.mark("reward", beat.instance, cause, self._pen.now)

    def _hear_actor(self, beat: Heartbeat) -> None:
        if beat.fence and beat.fence > self._pen.fence:
            raise Fenced(f"actor {beat.actor} obeys a newer planner: {beat.fence}")
        sighting = self._handouts.hear(beat)
        if sighting is None:
            return
        self._meter.mark("decode", beat.actor, actor_cause(beat), self._pen.now)
        if self._layout is not None:
            self._layout.hear(beat)
        self._prefill_meter.hear(beat)
        self._counts.hear(beat)

    def _hear_prefill(self, beat: PrefillBeat) -> None:
        if beat.fence and beat.fence > self._pen.fence:
            raise Fenced(f"{beat.instance} obeys a newer planner: {beat.fence}")
        if self._handouts.prefills.hear(beat):
            self._meter.mark("prefill", beat.instance, prefill_cause(beat), self._pen.now)
            self._prefill_meter.hear(beat)

    # --- replies --------------------------------------------------------------------------------------

    def _replied(self, call: int, reply: CommandReply | LearnerReply | None) -> None:
        if isinstance(reply, Refusal) and reply.code == "fenced":
            self._refused_as_old(reply)
        if reply is None or isinstance(reply, Refusal | Learned | Saved | Working):
            learned = self._training.replied(call, reply)
            if learned:
                self._course.learned(learned)
        if reply is None or isinstance(reply, Refusal | Ok):
            self._handouts.replied(call, reply)
            self._handouts.prefills.replied(call, reply)
            if self._layout is not None:
                self._layout.replied(call, reply)

    def _refused_as_old(self, refusal: Refusal) -> None:
        if refusal.seen is None or refusal.seen > self._pen.fence:
            raise Fenced(f"a newer planner is at work: {refusal.detail}")

    # --- time -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        step, now = self._pen.book.open, self._pen.now
        self._meter.mark("planner", self._pod, "busy", now)
        self._meter.expire(now, self._config.patience.lease)
        self._mourn(self._handouts.lapse())
        self._handouts.prefills.lapse()
        self._training.tick()
        if step is not None:
            self._handouts.resubmit(step)
            self._chase_scores(step)
        self._course.age()
        self._course.keep_pool()

    def _chase_scores(self, step: OpenStep) -> None:
        moment = self._pen.reachable
        for sample in self._scoring.overdue(moment):
            if not self._scoring.failed(sample, moment):
                self._intake.abandon(step, sample, "scoring: deadline")
        for sample in self._scoring.again(moment):
            self._intake.request(step, sample)
        self._intake.ask()

    def _mourn(self, gone: list[Actor]) -> None:
        for actor in gone:
            self._meter.lose("decode", actor.name)
            self._pen.do(Note("actor lost", {"actor": actor.name}))
