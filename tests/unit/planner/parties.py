"""Models of what surrounds a planner: decode actors, scorers, the learner gang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ebbtide import paths
from ebbtide.turns import mask_of
from ebbtide.wire import (
    ActorCommand,
    Assign,
    BatchManifest,
    Beat,
    CommandReply,
    Cut,
    CutSamples,
    Dispatch,
    Drain,
    EngineStats,
    Fact,
    Failed,
    Fence,
    Finished,
    Heartbeat,
    Journal,
    JournalRef,
    KvTicket,
    Learn,
    Learned,
    LearnerBeat,
    LearnerCommand,
    LearnerReply,
    LearnToken,
    LoadPolicy,
    Manifest,
    Ok,
    PolicyRef,
    Ref,
    Refusal,
    Rollout,
    Save,
    Saved,
    ScoreReady,
    Settle,
    Sleep,
    Span,
    Submit,
    Timings,
    TurnReady,
    Working,
    decode,
    digest,
    encode,
    pack_floats,
    pack_ints,
    pack_mask,
)
from tests.checker.evidence import Settled

if TYPE_CHECKING:
    from tests.unit.planner.world import World


def ref_to(path: str, data: bytes) -> Ref:
    return Ref(path, digest(data), len(data))


@dataclass
class Running:
    """`journalled`: tokens that the hot store has."""

    assign: Assign
    tokens: int
    journalled: int
    given: Journal

    @property
    def begun(self) -> int:
        """Tokens with which its turn began."""
        return len(self.given.tokens) // 4


class ModelActor:
    """Decodes `work()` by `work()`; every answer's length follows from its key."""

    def __init__(self, world: World, name: str, incarnation: str) -> None:
        self.world, self.name, self.incarnation = world, name, incarnation
        self.number = 0
        self.fence: Fence | None = None
        self.policy: PolicyRef | None = None
        self.draining = self.asleep = False
        self.wake_at = 0.0
        self.running: dict[Dispatch, Running] = {}
        self.outbox: dict[Dispatch, Fact] = {}
        self.settled: list[Settled] = []
        self.holding: dict[Dispatch, KvTicket] = {}

    # --- commands ---------------------------------------------------------------------------------

    def handle(self, command: ActorCommand | LearnerCommand) -> CommandReply:
        fence = command.fence
        if self.fence is not None and fence < self.fence:
            return Refusal("fenced", "superseded", seen=self.fence)
        self.fence = fence
        match command:
            case Submit(assigns=assigns):
                return self._submit(assigns)
            case CutSamples(dispatches=dispatches, reader=reader):
                for dispatch in dispatches:
                    self._cut(dispatch, reader)
            case Settle():
                self._settle(command)
            case LoadPolicy(policy=policy):
                return self._load(policy)
            case Sleep():
                return self._sleep()
            case Drain():
                self.drain()
        return Ok(self.number + 1)

    def _submit(self, assigns: tuple[Assign, ...]) -> CommandReply:
        new = [a for a in assigns if a.dispatch not in self.running | self.outbox]
        if self.draining:
            return Refusal("draining", "leaving", dispatches=tuple(a.dispatch for a in new))
        if any(a.policy != self.policy for a in new):
            return Refusal("policy", "another", dispatches=tuple(a.dispatch for a in new))
        for assign in new:
            self._start(assign)
        return Ok(self.number + 1)

    def _start(self, assign: Assign) -> None:
        resume = assign.resume
        had = self.world.journals.get((resume.key, resume.dispatch), 0) if resume else 0
        if resume and had < resume.n_tokens:
            self._end(Failed(assign.key, assign.dispatch, self.name, "journal_lost"))
            return
        self.world.exports.pull(assign, self.name)
        run = Running(assign, 0, 0, self.world.given(assign))
        run.tokens = resume.n_tokens if resume else run.begun
        assert run.tokens >= run.begun, "a journal of a turn holds all that it began with"
        self.running[assign.dispatch] = run
        self._journal(assign.dispatch)

    def _load(self, policy: PolicyRef) -> CommandReply:
        if self.running and policy != self.policy:
            return Refusal("invalid", "samples run")
        if self.asleep:
            self.asleep, self.wake_at = False, self.world.now + self.world.wake_seconds
        self.policy = policy
        return Ok(self.number + 1)

    def _sleep(self) -> CommandReply:
        if self.draining or not self.world.sleepers:
            return Refusal("draining" if self.draining else "unable", "awake")
        if self.running or self.holding:
            return Refusal("busy", "samples or KV")
        self.asleep, self.policy = True, None
        return Ok(self.number + 1)

    @property
    def state(self) -> str:
        """As heartbeats show it."""
        held = "serving" if self.policy else "empty"
        awake = "loading" if self.world.now < self.wake_at else held
        return "draining" if self.draining else "asleep" if self.asleep else awake

    def _cut(self, dispatch: Dispatch, reader: str = "") -> None:
        run = self.running.pop(dispatch, None)
        if run:
            key, n = run.assign.key, run.journalled
            journal, ticket = JournalRef(key, dispatch, n) if n else None, None
            if reader and n:
                ticket = self.world.exports.grant(self.name, run.assign, n, reader)
                self.holding[dispatch] = ticket
            self._end(Cut(key, dispatch, self.name, journal, n, ticket))

    def _settle(self, command: Settle) -> None:
        for verdict, dispatches in (("accepted", command.accepted), ("void", command.void)):
            for dispatch in dispatches:
                fact = self.outbox.pop(dispatch, None)
                if fact and verdict == "void":
                    self.world.exports.release(self.holding.pop(dispatch, None))
                if fact:
                    assert not isinstance(fact, ScoreReady | TurnReady)
                    self.world.journals.pop((fact.key, dispatch), None)
                    self.settled.append(_settled(fact, verdict))

    @property
    def gone(self) -> bool:
        """It has left: nothing of its is owed to anybody."""
        return self.draining and not (self.outbox or self.running or self.holding)

    def drain(self) -> None:
        self.draining = True
        for dispatch in list(self.running):
            self._cut(dispatch)

    # --- work -------------------------------------------------------------------------------------

    def work(self, *, journals: bool = True) -> None:
        """A moment passes: each sample gets a token, ends are published, a heartbeat is sent."""
        for dispatch in list(self.running):
            self._decode(dispatch, journals=journals)
        for fact in self.outbox.values():
            self.world.publish(fact, self.world.seat.fence)
        self.beat()

    def _decode(self, dispatch: Dispatch, *, journals: bool) -> None:
        run = self.running[dispatch]
        run.tokens += 1
        if journals:
            self._journal(dispatch)
        limit = run.assign.max_new_tokens
        wanted = self.world.answer(run.assign.key, limit)
        if run.tokens >= min(run.begun + wanted, limit):
            del self.running[dispatch]
            self._finish(run, "length" if run.begun + wanted > limit else "stop")

    def _journal(self, dispatch: Dispatch) -> None:
        run = self.running[dispatch]
        run.journalled = run.tokens
        self.world.journals[run.assign.key, dispatch] = run.tokens

    def _finish(self, run: Running, finish: str) -> None:
        assign, n = run.assign, run.tokens
        assert self.policy is not None
        spans, fresh = run.given.spans, range(run.begun, n)
        spans = (*spans, Span(run.begun, n, self.policy))
        rollout = Rollout(
            key=assign.key,
            dispatch=assign.dispatch,
            prompt_id=assign.prompt_id,
            prompt_tokens=pack_ints([1, 2, 3]),
            tokens=run.given.tokens + pack_ints(fresh),
            logprobs=run.given.logprobs + pack_floats([0.0] * len(fresh)),
            action_mask=pack_mask(mask_of(spans, n)),
            spans=spans,
            finish=finish,
            timings=Timings(0.0, 0.0, 0.0),
            actor=self.name,
        )
        data, path = encode(rollout), paths.rollouts(assign.key, assign.dispatch)
        self.world.blobs[path] = data
        ref = ref_to(path, data)
        chosen = rollout.n_chosen
        fact = Finished(
            assign.key, assign.dispatch, self.name, self.policy, ref, chosen, finish, n - chosen
        )
        self._end(fact)

    def _end(self, fact: Finished | Cut | Failed) -> None:
        self.outbox[fact.dispatch] = fact
        self.world.publish(fact, self.world.seat.fence)

    def beat(self) -> None:
        self.number += 1
        self.holding = self.world.exports.still_open(self.holding)
        rows = [
            (d.attempt, d.planner_epoch, d.seq, run.journalled) for d, run in self.running.items()
        ]
        self.world.beat(
            Heartbeat(
                actor=self.name,
                incarnation=self.incarnation,
                number=self.number,
                fence=self.fence,
                policy=self.policy,
                state=self.state,
                running=pack_ints(rows),
                outbox=tuple(self.outbox),
                holding=tuple(self.holding),
                stats=EngineStats(running=len(self.running), slots=self.world.slots),
            )
        )


def _settled(fact: Fact, verdict: str) -> Settled:
    assert not isinstance(fact, ScoreReady | TurnReady)
    key, hand = fact.key, fact.dispatch
    names = (key.job_uid, key.step_issued, key.group, key.index, key.turn)
    place = (fact.ref.path, fact.ref.digest) if isinstance(fact, Finished) else ("", "")
    return Settled(names, (hand.attempt, hand.planner_epoch, hand.seq), verdict, *place)


class Publisher(Protocol):
    """What a model learner needs of its world."""

    @property
    def blobs(self) -> dict[str, bytes]: ...

    def publish_policy(self, n: int, attempt: int, content: str) -> tuple[PolicyRef, Ref]:
        """A policy whose digest follows from `content`, and where its index lies."""
        ...

    def beat(self, message: Beat) -> None: ...


class ModelLearner:
    """Idempotent by token, one thing at a time; its policy is a digest of all it learned."""

    def __init__(
        self,
        world: Publisher,
        *,
        attempt: int,
        parent: Ref | None = None,
        model: str = "initial",
        reference: str = "",
    ) -> None:
        self.world, self.attempt, self.reference = world, attempt, reference
        manifest = decode(world.blobs[parent.path], Manifest) if parent else None
        self.steps = manifest.step if manifest else 0
        if manifest:
            self.policy, self.index = manifest.policy, manifest.index
        else:
            self.policy, self.index = world.publish_policy(0, attempt, model)
        self.fence = Fence(attempt, 0)
        self.last: Learned | None = None
        self.saved: dict[int, Saved] = {}
        self.running: Learn | Save | None = None
        self.updates: list[LearnToken] = []

    def handle(self, command: ActorCommand | LearnerCommand) -> LearnerReply:
        assert isinstance(command, Learn | Save)
        if command.fence.attempt != self.attempt or command.fence < self.fence:
            return Refusal("fenced", "superseded", seen=self.fence)
        self.fence = command.fence
        if isinstance(command, Save) and command.step in self.saved:
            return self.saved[command.step]
        if isinstance(command, Learn) and self.last and self.last.token == command.token:
            return self.last
        if self.running is None:
            refusal = self._refusal(command)
            if refusal:
                return refusal
            self.running = command
        return Working("learning")

    def _refusal(self, command: Learn | Save) -> Refusal | None:
        if isinstance(command, Save):
            past = command.step != self.steps
            return Refusal("policy", f"already after {self.steps}") if past else None
        manifest = self._manifest(command)
        if manifest.base != self.policy or manifest.step != self.steps:
            return Refusal("policy", f"base is {manifest.base}, state is {self.policy}")
        return None

    def _manifest(self, command: Learn) -> BatchManifest:
        data = self.world.blobs[command.manifest.path]
        assert digest(data) == command.token.manifest_digest == command.manifest.digest
        return decode(data, BatchManifest)

    def work(self) -> None:
        """Whatever runs is done."""
        command, self.running = self.running, None
        match command:
            case Learn():
                self._learn(command)
            case Save(step=step):
                shard = ref_to(paths.shards("job-1", self.attempt, step) + "0", b"shard")
                self.saved[step] = Saved(self.attempt, step, self.policy, self.index, (shard,), 0.1)
        self.beat()

    def _learn(self, command: Learn) -> None:
        content = f"{self.policy.digest} {command.token.manifest_digest}"
        self.steps += 1
        n = self.policy.n + 1
        self.policy, self.index = self.world.publish_policy(n, self.attempt, content)
        self.updates.append(command.token)
        self.last = Learned(command.token, self.policy, self.index, (), 1.0)

    def beat(self) -> None:
        phase = "learning" if isinstance(self.running, Learn) else "idle"
        where = (self.attempt, self.policy, self.index, phase, self.steps)
        self.world.beat(LearnerBeat(*where, reference=self.reference))
