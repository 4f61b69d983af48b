"""A model of everything around planner cores, over a network that does as a test says.

Messages lie in flight until the test delivers, loses or repeats them, in any order. Planners
perform their effects one by one, so that one can be killed between any two; a killed one may
live on as a zombie. What is durable (ledger, blobs) stays; what is not (streams, journals) may
be emptied. No clock, no loop: time moves by `tick`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ebbtide import paths
from ebbtide.errors import Fenced
from ebbtide.reports import StepReport
from ebbtide.turns import given_ids, replied
from ebbtide.wire import (
    Assign,
    Beat,
    Epoch,
    Fact,
    Fence,
    Journal,
    PolicyRef,
    Record,
    Ref,
    Refusal,
    Rollout,
    SampleKey,
    ScoreRequest,
    decode,
    digest,
)
from services.planner.core.book import Book
from services.planner.core.config import Data, Grpo, JobConfig, Recorded, Sft
from services.planner.core.effects import (
    LEARNER,
    Acknowledge,
    Append,
    AskScores,
    CommitManifest,
    Effect,
    Finish,
    LoadPrompts,
    Report,
    ScalePool,
    Send,
    WriteBlob,
)
from services.planner.core.events import (
    Event,
    Facts,
    Heard,
    ManifestCommitted,
    PodsGone,
    Prompt,
    PromptsLoaded,
    Replied,
    Tick,
)
from services.planner.core.lengths import Lengths, make_lengths
from services.planner.core.migrating import Rule
from services.planner.core.planner import Planner
from tests.checker.evidence import Evidence, Settled
from tests.unit.planner.builders import UID, usual_length, usual_worth
from tests.unit.planner.exports import Exports
from tests.unit.planner.parties import (
    ModelActor,
    ModelLearner,
    ref_to,
)
from tests.unit.planner.pool import ModelOperator
from tests.unit.planner.scorers import ModelScorer


@dataclass(eq=False)
class Seat:
    """One planner process: its core, and the effects that it has still to perform."""

    planner: Planner
    fence: Fence
    todo: deque[Effect] = field(default_factory=deque)
    alive: bool = True


@dataclass(eq=False)
class Letter:
    """A message in flight; it may be delivered any number of times, or never."""

    name: str
    deliver: Callable[[], None]


DEDUP_SECONDS = 120.0
"""For so long the broker absorbs a fact of the same name."""


class World:
    """`seat` is the present planner; `zombies` were replaced and do not know it.

    `model`, `reference`: what the next learner finds at `model.uri`, and the digest that it tells.
    `answer`: how long each answer is; `worth`: its reward; `says`: how many tokens the environment
    says after a turn, 0: the episode is over.
    """

    def __init__(
        self, config: JobConfig, data: Data, *, actors: int = 2, rule: Rule | None = None
    ) -> None:
        self.config, self.data, self.rule = config, data, rule
        self.now = 0.0
        self.records: list[Record] = []
        self.blobs: dict[str, bytes] = {}
        self.journals: dict[tuple[object, object], int] = {}
        self.exports = Exports(self)
        self.stream: dict[int, Fact] = {}
        self.scoring: list[ScoreRequest] = []
        self.letters: list[Letter] = []
        self.outcome: Finish | None = None
        self.reports: dict[int, StepReport] = {}
        self.zombies: list[Seat] = []
        self.former: list[ModelActor] = []
        self.actors: dict[str, ModelActor] = {}
        self.attempt = 1
        self.slots = 2
        self.answer: Callable[[SampleKey, int], int] = usual_length
        self.worth: Callable[[SampleKey], float] = usual_worth
        self.says: Callable[[SampleKey], int] = lambda _: 0
        self.sleepers, self.wake_seconds = True, 0.0
        self.model, self.reference = "initial", ""
        self._said: dict[tuple[Fact, object], float] = {}
        self._timeouts: list[tuple[float, Seat, int]] = []
        self._names = 0
        self.learner, self.operator = ModelLearner(self, attempt=1), ModelOperator(self)
        self.scorer = ModelScorer(self)
        for _ in range(actors):
            self.start_actor()
        self.seat = self._new_planner()

    # --- processes ------------------------------------------------------------------------------

    def start_actor(self, name: str = "") -> None:
        """A new process; a name given again is a restarted pod."""
        number = self._next()
        name = name or f"actor-{number}"
        self.actors[name] = ModelActor(self, name, incarnation=f"{name}/{number}")

    def kill_actor(self, name: str) -> None:
        """SIGKILL: what it held is gone, what it was told is not."""
        self.former.append(self.actors.pop(name))
        for ticket in self.former[-1].holding.values():
            self.exports.release(ticket)

    def kill_planner(self, *, zombie: bool = False) -> None:
        """The next planner takes over; the old one may live on without knowing."""
        if self.outcome:
            return
        self.seat.alive = zombie
        self.zombies += [self.seat] if zombie else []
        self.seat = self._new_planner()

    def kill_learner(self) -> None:
        """A new attempt: learner and planner start anew, actors and scorers stay."""
        if self.outcome:
            return
        self.attempt += 1
        self.kill_planner()
        epochs = [record for record in self.records if isinstance(record, Epoch)]
        self.learner = ModelLearner(
            self,
            attempt=self.attempt,
            parent=epochs[-1].parent,
            model=self.model,
            reference=self.reference,
        )

    def _new_planner(self) -> Seat:
        book = self.replayed()
        parent = book.newest_checkpoint() if self.attempt > book.attempt else book.parent
        epoch = Epoch(book.epoch + 1, self.attempt, len(self.records), parent)
        self.records.append(epoch)
        book.apply(epoch)
        planner = Planner(
            config=self.config,
            data=self.data,
            book=book,
            pod="planner",
            now=self.now,
            rule=self.rule,
        )
        return Seat(planner, Fence(self.attempt, epoch.n))

    def replayed(self) -> Book:
        work = self.config.work
        judged = isinstance(work, Grpo) and work.evaluation
        book = Book(
            job_uid=UID,
            rows_per_step=_rows(work),
            threshold=judged.threshold if judged else 1.0,
            lengths=self._lengths(),
        )
        for record in self.records:
            book.apply(record)
        return book

    def _lengths(self) -> Lengths:
        steering, work = self.config.steering, self.config.work
        limit = work.max_new_tokens if isinstance(work, Grpo) else 1
        return make_lengths(steering.prediction, limit=limit, window=steering.window)

    # --- what a planner hears and does ------------------------------------------------------------

    def feed(self, seat: Seat, event: Event) -> None:
        """One step of a core. A fenced planner ends."""
        if not seat.alive:
            return
        try:
            seat.todo.extend(seat.planner.step(event, self.now))
        except Fenced:
            assert seat is not self.seat, "only an old planner is ever fenced"
            seat.alive = False

    def perform(self, seat: Seat, count: int = 10**6) -> None:
        """Perform the next effects of `seat`, in order."""
        while seat.alive and seat.todo and count > 0:
            self._perform(seat, seat.todo.popleft())
            count -= 1

    def _perform(self, seat: Seat, effect: Effect) -> None:
        match effect:
            case Append(record=record):
                self._append(seat, record)
            case Acknowledge(tokens=tokens):
                for token in tokens:
                    self.stream.pop(token, None)
            case Send():
                self._send(seat, effect)
            case AskScores(requests=requests):
                self.scoring += requests
            case WriteBlob(path=path, data=data):
                self._write(path, data)
            case CommitManifest(step=step, path=path, data=data):
                found = self.blobs.setdefault(path, data)
                self.feed(seat, ManifestCommitted(step, ref_to(path, found)))
            case LoadPrompts():
                self._load_prompts(seat, effect)
            case Report() | Finish() | ScalePool():
                self._note(seat, effect)

    def _note(self, seat: Seat, effect: Report | Finish | ScalePool) -> None:
        match effect:
            case ScalePool():
                self._own(seat)
                if seat.alive:
                    self.operator.told(effect)
            case Finish() if seat is self.seat:
                self.outcome = effect
            case Report(report=report) if seat is self.seat:
                self.reports[report.step] = report

    def _own(self, seat: Seat) -> None:
        """A put at the next slot of the chain: an old planner's fails, and it ends."""
        newest = max(r.n for r in self.records if isinstance(r, Epoch))
        seat.alive = seat.fence.planner_epoch == newest

    def _append(self, seat: Seat, record: Record) -> None:
        self._own(seat)
        self.records += [record] if seat.alive else []

    def _write(self, path: str, data: bytes) -> None:
        """What a planner writes twice must be the same: readers hold its digest."""
        assert self.blobs.setdefault(path, data) == data, f"{path} was written anew"

    def _send(self, seat: Seat, send: Send) -> None:
        def deliver() -> None:
            target = self.learner if send.to == LEARNER else self.actors.get(send.to)
            reply = target.handle(send.command) if target else None
            if reply is not None and (send.call or isinstance(reply, Refusal)):
                self.post("reply", lambda: self.feed(seat, Replied(send.call, reply)))

        self.post(type(send.command).__name__, deliver)
        if send.call:
            self._timeouts.append((self.now + send.timeout, seat, send.call))

    def _load_prompts(self, seat: Seat, effect: LoadPrompts) -> None:
        train = tuple(Prompt(f"{ref.chunk.path}/{ref.row}", 3) for ref in effect.train)
        held_out = tuple(Prompt(f"{ref.chunk.path}/{ref.row}", 3) for ref in effect.eval)
        loaded = PromptsLoaded(effect.step, train, held_out, effect.turn)
        self.post("prompts", lambda: self.feed(seat, loaded))

    # --- the network ------------------------------------------------------------------------------

    def post(self, name: str, deliver: Callable[[], None]) -> None:
        self.letters.append(Letter(name, deliver))

    def publish(self, fact: Fact, ident: object) -> None:
        """The stream keeps the fact until a planner acknowledges it, and absorbs repetitions."""
        said = self._said.get((fact, ident))
        if said is None or self.now - said > DEDUP_SECONDS:
            self._said[fact, ident] = self.now
            self.stream[self._next()] = fact

    def publish_policy(self, n: int, attempt: int, content: str) -> tuple[PolicyRef, Ref]:
        """No actor of this world reads weights, so a name is enough."""
        policy = PolicyRef(n, attempt, digest(content.encode()))
        return policy, ref_to(f"{paths.policy(UID, attempt, n)}index.msgpack", content.encode())

    def given(self, assign: Assign) -> Journal:
        """What the turn begins from, as the ledger's blob says."""
        if assign.given is None:
            assert not assign.key.turn, "a later turn begins from something"
            return Journal(0, b"", b"", ())
        data = self.blobs[assign.given.path]
        assert digest(data) == assign.given.digest
        return decode(data, Journal)

    def reply(self, rollout: Rollout) -> Journal | None:
        """The text so far with what the environment says, a function of the rollout's key."""
        work, key = self.config.work, rollout.key
        says = self.says(key)
        if not isinstance(work, Grpo) or not says or rollout.finish != "stop":
            return None
        if key.turn + 1 >= work.turns or rollout.n_tokens + says >= work.max_new_tokens:
            return None
        return replied(rollout, given_ids(rollout.tokens, b"", [7] * says, b""))

    def beat(self, message: Beat) -> None:
        for seat in self.seats():
            self.post("beat", lambda seat=seat: self.feed(seat, Heard(message)))  # type: ignore[misc]

    def seats(self) -> Iterator[Seat]:
        return (seat for seat in (self.seat, *self.zombies) if seat.alive)

    def fetch(self, count: int = 10**6) -> None:
        """The present planner gets what is not acknowledged, again if need be."""
        some = list(self.stream.items())[:count]
        if some:
            self.feed(self.seat, Facts(tuple(some)))

    def tick(self, seconds: float, *, connected: bool = True) -> None:
        """Time passes; calls without an answer run into their time-outs."""
        self.now += seconds
        due = [entry for entry in self._timeouts if entry[0] <= self.now]
        self._timeouts = [entry for entry in self._timeouts if entry[0] > self.now]
        for _, seat, call in due:
            self.feed(seat, Replied(call, None))
        for seat in list(self.seats()):
            self.feed(seat, Tick(connected))

    def tell_gone(self, name: str) -> None:
        """The operator says that a pod has ended."""
        self.feed(self.seat, PodsGone((name,)))

    def _next(self) -> int:
        self._names += 1
        return self._names

    # --- a fair end -------------------------------------------------------------------------------

    def calm(self, rounds: int = 800) -> None:
        """Faults stop: everything arrives, everybody works, until the job ends."""
        self.operator.loses = 0
        alive = any(not actor.draining for actor in self.actors.values())
        if not (alive or self.config.steering.elastic):
            self.start_actor()
        for _ in range(rounds):
            if self.outcome:
                return
            self.one_round()
        raise AssertionError(f"the job does not end: {self.seat.planner.standing()}")

    def one_round(self, *, learns: bool = True) -> None:
        """Everything in flight arrives, and everybody works once; the learner may take longer."""
        for seat in list(self.seats()):
            self.perform(seat)
        letters, self.letters = self.letters, []
        for letter in letters:
            letter.deliver()
        for actor in list(self.actors.values()):
            actor.work()
        self.operator.work()
        self.scorer.work()
        if learns and self.config.given is None:
            self.learner.work()
        self.fetch()
        self.perform(self.seat)
        self.tick(0.5)

    def evidence(self) -> Evidence:
        """All that is known in the end, for the checker."""
        everybody = [*self.former, *self.actors.values()]
        settled: list[Settled] = [line for actor in everybody for line in actor.settled]
        return Evidence(UID, self.records, settled, self.blobs)


def _rows(work: Grpo | Sft | Recorded) -> int:
    if isinstance(work, Recorded):
        return 1
    return work.prompts if isinstance(work, Grpo) else work.batch * work.updates
