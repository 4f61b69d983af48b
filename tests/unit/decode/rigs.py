"""An actor's machine on a bench: what it is told, and what it does about it."""

from __future__ import annotations

from typing import TypeVar

from ebbtide.ports import (
    EngineCut,
    EngineFailed,
    EngineFinished,
    KvData,
    NewTokens,
    Resumed,
)
from ebbtide.wire import (
    ActorCommand,
    Assign,
    CommandReply,
    CutSamples,
    Dispatch,
    EngineStats,
    Fence,
    Heartbeat,
    Journal,
    JournalRef,
    KvKey,
    KvTicket,
    LoadPolicy,
    PolicyRef,
    PromptRef,
    Ref,
    Rollout,
    SampleKey,
    Sampling,
    Settle,
    Sleep,
    Span,
    Submit,
    pack_floats,
    pack_ints,
    unpack_ints,
)
from services.decode.core.actor import Actor
from services.decode.core.held import Limits
from services.decode.core.messages import (
    Commanded,
    Effect,
    Event,
    Fetched,
    Happened,
    Journalled,
    PolicyLoaded,
    Publish,
    Reply,
    Settled,
    Store,
    Stored,
    Terminal,
    Tick,
)

E = TypeVar("E", bound=Effect)
POLICY, OTHER, THIRD = (PolicyRef(n, 1, f"policy {n}") for n in range(3))
FENCE, NEWER = Fence(1, 1), Fence(1, 2)
READER = "b"
INDEX = Ref("index", "", 0)


def hand(seq: int = 0, epoch: int = 1) -> Dispatch:
    return Dispatch(1, epoch, seq)


def assign(
    dispatch: Dispatch | None = None,
    *,
    policy: PolicyRef = POLICY,
    resume: JournalRef | None = None,
) -> Assign:
    dispatch = dispatch or hand()
    return Assign(
        key=key(dispatch),
        dispatch=dispatch,
        policy=policy,
        prompt_id="p",
        prompt_ref=PromptRef(Ref("chunk", "", 0), 0),
        sampling=Sampling(1.0, ()),
        noise_key=b"k",
        max_new_tokens=64,
        resume=resume,
    )


def key(dispatch: Dispatch) -> SampleKey:
    return SampleKey("job", 0, dispatch.seq, 0)


def chunk(start: int, end: int, policy: PolicyRef = POLICY) -> Journal:
    """Tokens [start, end), each worth its position."""
    positions = range(start, end)
    return Journal(start, pack_ints(positions), pack_floats(positions), (Span(start, end, policy),))


def tokens(dispatch: Dispatch, start: int, end: int) -> NewTokens:
    return NewTokens(dispatch, chunk(start, end))


def was_cut(dispatch: Dispatch, n: int, kv: KvData | None = None) -> EngineCut:
    whole = chunk(0, n)
    return EngineCut(dispatch, whole.tokens, whole.logprobs, whole.spans, kv)


def blocks(n: int) -> KvData:
    return KvData(KvKey("policy 0", f"prefix of {n}", n, "layout"), memoryview(b"kv" * n))


def ticket(dispatch: Dispatch, n: int = 0, seconds: float = 30.0) -> KvTicket:
    """Ticket number `n`."""
    return KvTicket(blocks(1).key, "a", 1, READER, seconds, b"%d of %d" % (n, dispatch.seq))


def has_finished(dispatch: Dispatch, n: int, policy: PolicyRef = POLICY) -> EngineFinished:
    whole = chunk(0, n, policy)
    return EngineFinished(
        dispatch, whole.tokens, whole.logprobs, whole.spans, "stop", 0.1, 0.2, 0.3
    )


def has_failed(dispatch: Dispatch, code: str = "engine") -> EngineFailed:
    return EngineFailed(dispatch, code, "why")


def resumed(n: int) -> Resumed:
    whole = chunk(0, n)
    return Resumed(whole.tokens, whole.logprobs, whole.spans)


def blob(rollout: Rollout) -> Ref:
    return Ref(f"rollout {rollout.dispatch.seq}", "", rollout.n_tokens)


class Rig:
    """Holds `POLICY`, unless `empty`. `did` has the effects of the last event."""

    def __init__(
        self, *, empty: bool = False, slots: int = 4, queue: int = 4, sleeps: bool = True
    ) -> None:
        self.now = 0.0
        self.limits = Limits(
            slots=slots, queue=queue, republish=2.0, orphan=60.0, close=10.0, sleeps=sleeps
        )
        self.actor = Actor(name="a", incarnation="i", limits=self.limits, now=0.0)
        self.did: list[Effect] = []
        if not empty:
            self.load(POLICY)
            self.tell(PolicyLoaded(POLICY))

    def tell(self, event: Event) -> list[Effect]:
        self.did = self.actor.step(event, self.now)
        return self.did

    def of(self, kind: type[E]) -> list[E]:
        """Effects of the last event."""
        return [effect for effect in self.did if isinstance(effect, kind)]

    @property
    def facts(self) -> list[Terminal]:
        """Published by the last event."""
        return [fact for effect in self.of(Publish) for fact in effect.facts]

    @property
    def settled(self) -> list[tuple[int, str]]:
        return [(each.fact.dispatch.seq, each.verdict) for each in self.of(Settled)]

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.tell(Tick())

    def beat(self) -> Heartbeat:
        return self.actor.heartbeat(EngineStats())

    def running(self) -> dict[int, int]:
        """Journalled tokens by sequence number, as a heartbeat shows them."""
        rows = unpack_ints(self.beat().running).reshape(-1, 4).tolist()
        return {seq: n for _, _, seq, n in rows}

    # --- commands ---------------------------------------------------------------------------------

    def command(self, command: ActorCommand) -> CommandReply:
        self.tell(Commanded(command))
        [reply] = self.of(Reply)
        return reply.reply

    def submit(self, *assigns: Assign, fence: Fence = FENCE) -> CommandReply:
        return self.command(Submit(fence, assigns))

    def cut(self, *dispatches: Dispatch, fence: Fence = FENCE, reader: str = "") -> CommandReply:
        return self.command(CutSamples(fence, dispatches, reader))

    def load(self, policy: PolicyRef, fence: Fence = FENCE) -> CommandReply:
        return self.command(LoadPolicy(fence, policy, INDEX))

    def sleep(self, fence: Fence = FENCE) -> CommandReply:
        return self.command(Sleep(fence))

    def settle(self, *accepted: Dispatch, void: tuple[Dispatch, ...] = ()) -> CommandReply:
        return self.command(Settle(FENCE, accepted, void))

    # --- a sample's way ---------------------------------------------------------------------------

    def run(self, dispatch: Dispatch | None = None) -> Dispatch:
        """Have the engine decode it."""
        dispatch = dispatch or hand()
        self.submit(assign(dispatch))
        self.tell(Fetched(dispatch, pack_ints([7]), None))
        return dispatch

    def happen(self, *events: NewTokens | EngineCut | EngineFinished | EngineFailed) -> None:
        self.tell(Happened(events))

    def journalled(self, dispatch: Dispatch, n: int) -> None:
        self.tell(Journalled(((dispatch, n),)))

    def finish(self, dispatch: Dispatch, n: int = 3) -> Ref:
        """Have it finished, stored and published; returns its blob."""
        self.happen(has_finished(dispatch, n))
        [store] = self.of(Store)
        ref = blob(store.rollout)
        self.tell(Stored(((dispatch, ref),)))
        return ref
