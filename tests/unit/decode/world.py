"""What surrounds an actor: an engine, stores that answer late and twice, and what must hold."""

from __future__ import annotations

from ebbtide.ports import EngineCut, EngineEvent, EngineFailed, EngineFinished, NewTokens
from ebbtide.wire import (
    Cut,
    Dispatch,
    Failed,
    Finished,
    PolicyRef,
    SampleKey,
    unpack_ints,
)
from services.decode.core.messages import (
    Admit,
    CutEngine,
    Effect,
    Event,
    Export,
    Exported,
    Fetch,
    Gone,
    Happened,
    Journalled,
    Load,
    LoadFailed,
    PolicyLoaded,
    Publish,
    Release,
    Reply,
    Settled,
    SleepEngine,
    Slept,
    StillOpen,
    Store,
    Stored,
    Terminal,
    Write,
)
from tests.unit.decode.rigs import (
    READER,
    Rig,
    blob,
    blocks,
    has_failed,
    has_finished,
    ticket,
    tokens,
    was_cut,
)

ENDS = {EngineFinished: Finished, EngineCut: Cut, EngineFailed: Failed}


class World:
    """Performs effects when a test says so, and holds the actor to its laws after each event."""

    def __init__(self) -> None:
        self.rig = Rig(empty=True)
        self.fetches: list[Fetch] = []
        self.writes: list[Write] = []
        self.stores: list[Store] = []
        self.loads: list[Load] = []
        self.falling: list[SleepEngine] = []
        self.policy: PolicyRef | None = None
        self.decoding: dict[Dispatch, int] = {}
        self.cutting: dict[Dispatch, None] = {}
        self.taken: dict[Dispatch, SampleKey] = {}
        self.admitted: set[Dispatch] = set()
        self.ended: dict[Dispatch, EngineEvent] = {}
        self.closed_at: dict[Dispatch, float] = {}
        self.journal: dict[Dispatch, int] = {}
        self.stored: set[Dispatch] = set()
        self.facts: dict[Dispatch, Terminal] = {}
        self.settled: dict[Dispatch, str] = {}
        self.exports: list[Export] = []
        self.asked: set[Dispatch] = set()
        self.tickets: dict[bytes, Dispatch] = {}
        self.open: set[bytes] = set()
        self.heard: list[Event] = []
        self.gone: list[bool] = []
        self._performers = {
            Fetch: self.fetches.append,
            Write: self.writes.append,
            Store: self.stores.append,
            Admit: self._admit,
            CutEngine: self._cut,
            Export: self._export,
            Release: self._release,
            Load: self._load,
            SleepEngine: self._sleep,
            Publish: self._published,
            Settled: self._settled,
            Gone: self._gone,
            Reply: lambda _: None,
        }

    # --- what is told ---------------------------------------------------------------------------

    def tell(self, event: Event) -> list[Effect]:
        """Tell the actor, perform at once what a shell performs at once, check."""
        if _comes_twice(event):
            self.heard.append(event)
        did = self.rig.tell(event)
        self.perform(did)
        return did

    def perform(self, did: list[Effect]) -> None:
        for effect in did:
            self._performers[type(effect)](effect)  # type: ignore[operator]
        self._check_inventory()

    # --- what the world does ----------------------------------------------------------------------

    def draw(self, dispatch: Dispatch) -> None:
        """The engine draws two tokens, of which the actor hears."""
        n = self.decoding[dispatch]
        self.decoding[dispatch] = n + 2
        self.tell(Happened((tokens(dispatch, n, n + 2),)))

    def end(self, dispatch: Dispatch, how: str) -> None:
        """The engine ends it, with one token more than the actor heard of. how: a cut if asked."""
        n = self.decoding.pop(dispatch) + 1
        self.cutting.pop(dispatch, None)
        kv = blocks(n) if dispatch in self.asked else None
        self._ended(was_cut(dispatch, n, kv) if how == "cut" else has_finished(dispatch, n))

    def fail(self, dispatch: Dispatch) -> None:
        del self.decoding[dispatch]
        self.cutting.pop(dispatch, None)
        self._ended(has_failed(dispatch))

    def _ended(self, event: EngineCut | EngineFinished | EngineFailed) -> None:
        self.ended[event.dispatch] = event
        self.closed_at[event.dispatch] = self.rig.now
        self.tell(Happened((event,)))

    def acknowledge(self, count: int) -> None:
        """The hot store has the next `count` chunks."""
        done, self.writes[:] = self.writes[:count], self.writes[count:]
        for write in done:
            dispatch, n = write.ref.dispatch, write.ref.n_tokens
            assert write.chunk.start <= self.journal.get(dispatch, 0), "a gap in the journal"
            self.journal[dispatch] = max(self.journal.get(dispatch, 0), n)
        self.tell(Journalled(tuple((w.ref.dispatch, w.ref.n_tokens) for w in done)))

    def export(self, *, well: bool) -> None:
        """The next export is held, or cannot be."""
        effect = self.exports.pop(0)
        held = ticket(effect.dispatch, n=len(self.tickets)) if well else None
        if held is not None:
            self.tickets[held.opaque] = effect.dispatch
            self.open.add(held.opaque)
        self.tell(Exported(effect.dispatch, held))

    @property
    def readable(self) -> list[bytes]:
        """Open tickets that a reader can know: their facts were told."""
        return sorted(opaque for opaque in self.open if self.tickets[opaque] in self.facts)

    def read(self, opaque: bytes) -> None:
        """A reader has what it wanted."""
        self.open.discard(opaque)
        self.tell(StillOpen(frozenset(self.open)))

    def store(self) -> None:
        rollout = self.stores.pop(0).rollout
        self.stored.add(rollout.dispatch)
        self.tell(Stored(((rollout.dispatch, blob(rollout)),)))

    def loaded(self, *, well: bool) -> None:
        policy = self.loads.pop(0).policy
        self.policy = policy if well else None
        self.tell(PolicyLoaded(policy) if well else LoadFailed(policy, "why"))

    def slept(self, *, well: bool) -> None:
        """The engine sleeps, or could not."""
        self.falling.pop()
        self.tell(Slept("" if well else "why"))

    # --- what the actor does ----------------------------------------------------------------------

    def _admit(self, effect: Admit) -> None:
        dispatch = effect.assign.dispatch
        assert dispatch in self.taken
        assert dispatch not in self.admitted, "run twice"
        assert effect.assign.policy == self.policy, "a sample of another policy"
        assert not self.loads, "admitted during a load"
        self.admitted.add(dispatch)
        self.decoding[dispatch] = len(effect.resumed.tokens) // 4 if effect.resumed else 0

    def _cut(self, effect: CutEngine) -> None:
        if effect.export:
            self.asked.add(effect.dispatch)
        if effect.dispatch in self.decoding:
            assert effect.dispatch not in self.cutting, "cut twice"
            self.cutting[effect.dispatch] = None

    def _export(self, effect: Export) -> None:
        assert effect.dispatch in self.asked, "nobody asked for its KV"
        assert effect.reader == READER
        self.exports.append(effect)

    def _release(self, effect: Release) -> None:
        dispatch = self.tickets[effect.ticket.opaque]
        fact = self.facts.get(dispatch)
        told = isinstance(fact, Cut) and fact.ticket == effect.ticket
        assert not told or self.settled.get(dispatch) == "void", "took back what is promised"
        self.open.discard(effect.ticket.opaque)

    def _load(self, effect: Load) -> None:
        assert not self.decoding, "loaded while samples run"
        assert not self.loads, "two loads at once"
        assert not self.falling, "loaded before it slept"
        assert not self.rig.running(), "loaded with samples in hand"
        self.policy = None
        self.loads.append(effect)

    def _sleep(self, effect: SleepEngine) -> None:
        beat = self.rig.beat()
        assert not self.decoding, "put to sleep while samples run"
        assert not self.loads, "put to sleep while it loads"
        assert not beat.running, "put to sleep with samples in hand"
        assert not beat.holding, "put to sleep while it holds KV"
        assert not self.falling, "put to sleep twice"
        assert (beat.state, beat.policy) == ("asleep", None)
        self.policy = None
        self.falling.append(effect)

    def _published(self, effect: Publish) -> None:
        for fact in effect.facts:
            if effect.again:
                assert self.facts[fact.dispatch] == fact, "another fact about the same hand-out"
                assert fact.dispatch not in self.settled, "published after it was settled"
            else:
                assert fact.dispatch not in self.facts, "two ends of one hand-out"
                self.facts[fact.dispatch] = fact
                self._check_fact(fact)

    def _check_fact(self, fact: Terminal) -> None:
        dispatch, event = fact.dispatch, self.ended.get(fact.dispatch)
        assert self.taken[dispatch] == fact.key
        if event is not None:
            assert isinstance(fact, ENDS[type(event)]), "not how the engine ended it"
        else:
            assert isinstance(fact, Cut | Failed)
            assert dispatch not in self.decoding, "ended while it runs"
        if isinstance(fact, Finished):
            assert dispatch in self.stored, "told before its blob was written"
        if isinstance(fact, Cut):
            self._check_cut(fact)

    def _check_cut(self, fact: Cut) -> None:
        journalled, event = self.journal.get(fact.dispatch, 0), self.ended.get(fact.dispatch)
        assert fact.n_tokens <= journalled, "promises tokens that no journal holds"
        assert (fact.journal.n_tokens if fact.journal else 0) == fact.n_tokens
        if isinstance(event, EngineCut):
            waited = self.rig.now - self.closed_at[fact.dispatch]
            whole = fact.n_tokens == len(event.tokens) // 4
            assert whole or waited >= self.rig.limits.close, "told before the journal was whole"
            ready = all(export.dispatch != fact.dispatch for export in self.exports)
            assert ready or waited >= self.rig.limits.close, "told before its KV was held"
        if fact.ticket is not None:
            assert self.tickets[fact.ticket.opaque] == fact.dispatch

    def _settled(self, effect: Settled) -> None:
        dispatch = effect.fact.dispatch
        assert effect.fact == self.facts[dispatch]
        assert dispatch not in self.settled, "settled twice"
        self.settled[dispatch] = effect.verdict

    def _gone(self, effect: Gone) -> None:
        assert not self.gone, "left twice"
        self.gone.append(effect.orphaned)
        beat = self.rig.beat()
        empty = not beat.running and not beat.outbox and not beat.holding
        assert effect.orphaned or (empty and self.rig.actor.draining)

    def _check_inventory(self) -> None:
        """A hand-out is running, in the outbox, or settled; shown tokens are in the journal."""
        beat = self.rig.beat()
        outbox = set(beat.outbox)
        rows = unpack_ints(beat.running).reshape(-1, 4).tolist()
        held = {Dispatch(a, e, s): n for a, e, s, n in rows}
        told = {d for d, f in self.facts.items() if isinstance(f, Cut) and f.ticket}
        void = {d for d, verdict in self.settled.items() if verdict == "void"}
        assert set(beat.holding) <= told - void
        assert not held.keys() & outbox
        assert held.keys() | outbox == self.taken.keys() - self.settled.keys()
        assert all(n <= self.journal.get(d, 0) for d, n in held.items())


def _comes_twice(event: Event) -> bool:
    """The engine ends a sample once, and news of a load are no longer true the second time."""
    if isinstance(event, Happened):
        return all(isinstance(each, NewTokens) for each in event.events)
    return not isinstance(event, PolicyLoaded | LoadFailed | Slept | Exported | StillOpen)
