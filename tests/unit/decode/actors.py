"""An actor's machine with a world around it that a test drives by hand or at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from ebbtide.ports import EngineCut, EngineEvent, EngineFailed, EngineFinished, NewTokens, Resumed
from ebbtide.wire import (
    ActorCommand,
    Assign,
    CommandReply,
    Dispatch,
    EngineStats,
    Fence,
    Journal,
    JournalRef,
    LoadPolicy,
    PolicyRef,
    PromptRef,
    Ref,
    SampleKey,
    Sampling,
    Span,
    pack_floats,
    pack_ints,
    unpack_ints,
)
from services.decode.core.actor import Actor
from services.decode.core.held import Limits
from services.decode.core.messages import (
    Admit,
    Commanded,
    CutEngine,
    Effect,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    Gone,
    Happened,
    Journalled,
    Load,
    LoadFailed,
    PolicyLoaded,
    Publish,
    Reply,
    Settled,
    Store,
    Stored,
    Terminal,
    Tick,
    Write,
)

T = TypeVar("T")
FENCE = Fence(1, 1)
OLD, NEW = PolicyRef(1, 1, "old"), PolicyRef(2, 1, "new")
BLOB = Ref("blob", "digest", 1)


def assign(seq: int, *, policy: PolicyRef = OLD, resume: int = 0, epoch: int = 1) -> Assign:
    """Sample `seq`; with `resume`, that many tokens of an earlier dispatch go before."""
    key, before = SampleKey("job", 0, seq, 0), Dispatch(0, 0, seq)
    return Assign(
        key=key,
        dispatch=Dispatch(1, epoch, seq),
        policy=policy,
        prompt_id="prompt",
        prompt_ref=PromptRef(BLOB, 0),
        sampling=Sampling(1.0, ()),
        noise_key=b"",
        max_new_tokens=8,
        resume=JournalRef(key, before, resume) if resume else None,
    )


def text(start: int, end: int, policy: PolicyRef = OLD) -> Journal:
    """Tokens [start, end), each its own position."""
    places = range(start, end)
    return Journal(start, pack_ints(places), pack_floats(places), (Span(start, end, policy),))


def resumed(n: int) -> Resumed:
    whole = text(0, n)
    return Resumed(whole.tokens, whole.logprobs, whole.spans)


def tokens(dispatch: Dispatch, start: int, end: int) -> NewTokens:
    return NewTokens(dispatch, text(start, end))


def finish(dispatch: Dispatch, n: int) -> EngineFinished:
    whole = text(0, n)
    times = (0.1, 0.2, 0.3)
    return EngineFinished(dispatch, whole.tokens, whole.logprobs, whole.spans, "stop", *times)


def cut(dispatch: Dispatch, n: int) -> EngineCut:
    whole = text(0, n)
    return EngineCut(dispatch, whole.tokens, whole.logprobs, whole.spans)


class Bench:
    """An actor that holds policy OLD, and all that it did so far."""

    def __init__(self, *, holding: PolicyRef | None = OLD, slots: int = 4, queue: int = 4) -> None:
        limits = Limits(slots=slots, queue=queue)
        self.now = 0.0
        self.actor = Actor(name="a0", incarnation="i", limits=limits, now=0.0)
        self.done: list[Effect] = []
        if holding:
            self.command(LoadPolicy(FENCE, holding, BLOB))
            self.tell(PolicyLoaded(holding))
            self.done.clear()

    def tell(self, event: Event, *, after: float = 0.0) -> list[Effect]:
        self.now += after
        effects = self.actor.step(event, self.now)
        self.done += effects
        return effects

    def command(self, command: ActorCommand) -> CommandReply:
        replies = [e.reply for e in self.tell(Commanded(command)) if isinstance(e, Reply)]
        assert len(replies) == 1
        return replies[0]

    def engine(self, *events: EngineEvent) -> list[Effect]:
        return self.tell(Happened(events))

    def run(self, dispatch: Dispatch, *, resume: int = 0) -> list[Effect]:
        """Its prompt was read, so that the engine has it."""
        return self.tell(Fetched(dispatch, b"prompt", resumed(resume) if resume else None))

    def facts(self) -> list[Terminal]:
        """Terminal facts in the order of their first publication."""
        published = [fact for e in self.done if isinstance(e, Publish) for fact in e.facts]
        return [fact for i, fact in enumerate(published) if fact not in published[:i]]

    def of(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    def running(self) -> dict[int, int]:
        """Journalled tokens by sequence number, as the heartbeat tells."""
        rows = unpack_ints(self.actor.heartbeat(EngineStats()).running).reshape(-1, 4)
        return {int(row[2]): int(row[3]) for row in rows}

    def outbox(self) -> list[int]:
        return [hand.seq for hand in self.actor.heartbeat(EngineStats()).outbox]


@dataclass
class World:
    """Answers an actor's effects in any order, each once; may lose none of them.

    `engine` is what the engine holds: tokens so far by dispatch, as the port promises them.
    """

    bench: Bench
    rng: Random
    pending: list[Effect] = field(default_factory=list)
    engine: dict[Dispatch, int] = field(default_factory=dict)
    admitted: list[Dispatch] = field(default_factory=list)
    journal: dict[Dispatch, set[int]] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)
    gone: bool = False

    def take(self) -> None:
        """Move what the actor wants into the world's queue."""
        for effect in self.bench.done:
            match effect:
                case Gone():
                    self.gone = True
                case Settled():
                    self.settled.append(effect)
                case Publish() | Reply():
                    pass
                case _:
                    self.pending.append(effect)
        self.bench.done = [e for e in self.bench.done if isinstance(e, Publish)]

    def answer(self) -> None:
        """Perform one pending effect, any of them but writes, whose order is kept."""
        writes = [e for e in self.pending if isinstance(e, Write)]
        choices = [e for e in self.pending if not isinstance(e, Write)] + writes[:1]
        effect = self.rng.choice(choices)
        self.pending.remove(effect)
        self._perform(effect)
        self.take()

    def _perform(self, effect: Effect) -> None:
        tell = self.bench.tell
        match effect:
            case Fetch(assign=assign) if self.rng.random() < 0.1:
                tell(FetchFailed(assign.dispatch, "journal_lost", "lost"))
            case Fetch(assign=assign):
                before = resumed(assign.resume.n_tokens) if assign.resume else None
                tell(Fetched(assign.dispatch, b"prompt", before))
            case Admit(assign=assign):
                assert assign.dispatch not in self.admitted, "given to the engine twice"
                self.admitted.append(assign.dispatch)
                self.engine[assign.dispatch] = assign.resume.n_tokens if assign.resume else 0
            case CutEngine(dispatch=dispatch) if dispatch in self.engine:
                self.bench.engine(cut(dispatch, self.engine.pop(dispatch)))
            case Write(ref=ref, chunk=chunk):
                places = unpack_ints(chunk.tokens).tolist()
                self.journal.setdefault(ref.dispatch, set()).update(places)
                tell(Journalled(((ref.dispatch, ref.n_tokens),)))
            case Store(rollout=rollout):
                tell(Stored(rollout.dispatch, BLOB))
            case Load(policy=policy):
                assert not self.engine, "loaded while samples run"
                failed = self.rng.random() < 0.2
                tell(LoadFailed(policy) if failed else PolicyLoaded(policy))

    def decode(self) -> None:
        """The engine draws a token, ends a sample, or fails one."""
        if not self.engine:
            return
        dispatch = self.rng.choice(list(self.engine))
        n = self.engine[dispatch]
        fate = self.rng.random()
        if fate < 0.1:
            del self.engine[dispatch]
            self.bench.engine(EngineFailed(dispatch, "engine", "broke"))
        elif fate < 0.3 and n:
            del self.engine[dispatch]
            self.bench.engine(finish(dispatch, n))
        else:
            self.engine[dispatch] = n + 1
            self.bench.engine(tokens(dispatch, n, n + 1))
        self.take()

    def calm(self) -> None:
        """Let everything come to rest."""
        while self.pending or self.engine:
            if self.pending:
                self.answer()
            else:
                self.decode()
        self.bench.tell(Tick(), after=10.0)
        self.take()
