"""The actor's machine: `step(event, now) -> effects` over the samples that it holds (pure).

Each dispatch takes one way: fetching -> running -> (finished: storing | cut: closing) -> outbox
-> settled. A cut with a reader holds its KV beyond that (`services.decode.core.holding`). It ends
in exactly one terminal fact, which is kept and published until the planner has answered for it. A
dispatch that was settled is remembered, so a late copy of its Submit is not run again.
"""

from __future__ import annotations

from ebbtide import journals
from ebbtide.loading import Loading
from ebbtide.ports import EngineCut, EngineEvent, EngineFailed, EngineFinished, NewTokens
from ebbtide.wire import (
    ActorCommand,
    Assign,
    Cut,
    CutSamples,
    Dispatch,
    Drain,
    EngineStats,
    Fence,
    Heartbeat,
    Journal,
    JournalRef,
    KvTicket,
    LoadPolicy,
    Ok,
    PolicyRef,
    Refusal,
    Settle,
    Sleep,
    Submit,
    pack_ints,
)
from services.decode.core.held import Held, Limits
from services.decode.core.holding import Holding
from services.decode.core.messages import (
    Admit,
    Commanded,
    CutEngine,
    Effect,
    Event,
    Export,
    Exported,
    Fetch,
    Fetched,
    FetchFailed,
    Gone,
    Happened,
    Journalled,
    Leave,
    Load,
    LoadFailed,
    PlannerSeen,
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
    Tick,
    Write,
)
from services.decode.core.past import Past
from services.decode.core.resting import Resting


class Actor:
    """`name`: the pod; `incarnation`: this process of it."""

    def __init__(self, *, name: str, incarnation: str, limits: Limits, now: float) -> None:
        self.policy: PolicyRef | None = None
        self.draining = False
        self._name, self._incarnation, self._limits = name, incarnation, limits
        self._fence: Fence | None = None
        self._heard = self._published = now
        self._number = 0
        self._held: dict[Dispatch, Held] = {}
        self._outbox: dict[Dispatch, Terminal] = {}
        self._past = Past()
        self._loading = Loading(tries=limits.load_tries, pause=limits.load_pause)
        self._unable: LoadFailed | None = None
        self._prefill = 0.0
        self._closing: set[Dispatch] = set()
        self._holding = Holding()
        self._resting = Resting(able=limits.sleeps)
        self._gone = False
        self._now = now
        self._effects: list[Effect] = []
        self._handlers = {
            Commanded: self._commanded,
            Fetched: self._fetched,
            FetchFailed: self._fetch_failed,
            Happened: self._happened,
            Journalled: self._journalled,
            Stored: self._stored,
            Exported: self._exported,
            StillOpen: self._still_open,
            PolicyLoaded: self._loaded,
            LoadFailed: self._load_failed,
            Slept: self._slept,
            PlannerSeen: self._planner_seen,
            Leave: self._leave,
            Tick: self._tick,
        }

    # --- what it looks like -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Loading | serving | draining | empty | asleep, for heartbeats."""
        if self.draining:
            return "draining"
        if self._loading.busy:
            return "loading"
        if self._resting.asleep:
            return "asleep"
        return "serving" if self.policy else "empty"

    @property
    def busy(self) -> bool:
        """Whether it has a sample."""
        return bool(self._held)

    @property
    def drawing(self) -> bool:
        """Whether it has a sample whose answer is not whole."""
        return any(held.rollout is None for held in self._held.values())

    @property
    def unjournalled(self) -> int:
        """Tokens drawn of which the hot store has not said that it holds them."""
        return sum(max(0, held.written - held.journalled) for held in self._held.values())

    def fetches(self, dispatch: Dispatch) -> bool:
        """Whether it still waits for what is being read for it."""
        held = self._held.get(dispatch)
        return held is not None and held.stage == "fetching"

    def heartbeat(self, stats: EngineStats) -> Heartbeat:
        """The next heartbeat: everything that is held, now."""
        self._number += 1
        return Heartbeat(
            actor=self._name,
            incarnation=self._incarnation,
            number=self._number,
            fence=self._fence,
            policy=self.policy,
            state=self.state,
            running=pack_ints([held.row for held in self._held.values()]),
            outbox=tuple(self._outbox),
            stats=stats,
            prefill_seconds=self._prefill,
            load_failure=self._loading.why,
            holding=self._holding.dispatches,
        )

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in `event`; returns what is to be done, in order."""
        self._now = now
        self._effects = []
        self._handlers[type(event)](event)  # type: ignore[operator]
        self._proceed()
        return self._effects

    # --- commands ---------------------------------------------------------------------------------

    def _commanded(self, event: Commanded) -> None:
        command = event.command
        if self._fence is not None and command.fence < self._fence:
            detail = f"a newer planner commands: {self._fence}"
            self._do(Reply(Refusal("fenced", detail, seen=self._fence)))
            return
        self._fence, self._heard = command.fence, self._now
        refusal = self._obey(command)
        self._do(Reply(refusal or Ok(self._number + 1)))

    def _obey(self, command: ActorCommand) -> Refusal | None:
        match command:
            case Submit(assigns=assigns):
                return self._submit(assigns)
            case CutSamples(dispatches=dispatches, reader=reader):
                self._cut_all(dispatches, reader)
            case Settle():
                self._settle(command)
            case LoadPolicy():
                return self._want(command)
            case Sleep():
                return self._sleep()
            case Drain():
                self._leave(command)
        return None

    def _submit(self, assigns: tuple[Assign, ...]) -> Refusal | None:
        new = list({a.dispatch: a for a in assigns if not self._knows(a.dispatch)}.values())
        named = tuple(a.dispatch for a in new)
        if new and (self.draining or self._gone):
            return Refusal("draining", "the actor is leaving", dispatches=named)
        # A policy that is about to go takes nothing in, or its samples would keep the next out.
        current = None if self._loading.wanted else self.policy
        others = tuple(a.dispatch for a in new if a.policy != current)
        if others:
            held = f"version {current.n}" if current else "none"
            return Refusal("policy", f"the actor holds another policy: {held}", dispatches=others)
        if len(self._held) + len(new) > self._limits.slots + self._limits.queue:
            return Refusal("full", f"the actor holds {len(self._held)} samples", dispatches=named)
        for assign in new:
            self._held[assign.dispatch] = Held(assign)
            self._do(Fetch(assign))
        return None

    def _knows(self, dispatch: Dispatch) -> bool:
        return dispatch in self._held or dispatch in self._outbox or dispatch in self._past

    def _cut_all(self, dispatches: tuple[Dispatch, ...] | list[Dispatch], reader: str = "") -> None:
        for dispatch in dispatches:
            held = self._held.get(dispatch)
            if held is None:
                continue
            if held.stage == "fetching":
                self._close(held)
            elif held.stage == "running":
                held.stage, held.reader = "cutting", reader
                self._do(CutEngine(dispatch, export=bool(reader)))

    def _settle(self, command: Settle) -> None:
        for verdict, dispatches in (("accepted", command.accepted), ("void", command.void)):
            for dispatch in dispatches:
                fact = self._outbox.pop(dispatch, None)
                if fact is not None:
                    self._past.add(dispatch)
                    self._do(Settled(fact, verdict))
                    self._release(self._holding.void(dispatch) if verdict == "void" else None)

    # --- policy -----------------------------------------------------------------------------------

    def _want(self, command: LoadPolicy) -> Refusal | None:
        """Load once nothing runs; samples of the old policy are cut."""
        if self.draining:
            return Refusal("draining", "the actor is leaving")
        if self._loading.want(command, self.policy):
            self._resting.wake()
            self._cut_all(list(self._held))
        return None

    def _sleep(self) -> Refusal | None:
        refusal = self._resting.refusal(
            draining=self.draining,
            held=len(self._held),
            kv=len(self._holding.dispatches),
            loading=self._loading.busy,
        )
        if refusal is None and self._resting.begin():
            self.policy = None
            self._do(SleepEngine())
        return refusal

    def _slept(self, event: Slept) -> None:
        self._resting.done(well=not event.why)

    def _loaded(self, event: PolicyLoaded) -> None:
        if self._loading.succeeded(event.policy):
            self.policy = event.policy

    def _load_failed(self, event: LoadFailed) -> None:
        if self._loading.failed(event.policy, event.why, self._now):
            self._unable = event
            self._leave(None)

    # --- one sample's way -------------------------------------------------------------------------

    def _fetched(self, event: Fetched) -> None:
        held = self._held.get(event.dispatch)
        if held is None or held.stage != "fetching":
            return
        held.stage, held.prompt = "running", event.prompt
        if (parts := event.resumed) is not None:
            self._write(held, Journal(0, parts.tokens, parts.logprobs, parts.spans))
        self._do(Admit(held.assign, event.prompt, event.resumed, event.kv))

    def _fetch_failed(self, event: FetchFailed) -> None:
        held = self._held.get(event.dispatch)
        if held is not None and held.stage == "fetching":
            self._end(held, held.failed(self._name, event.code, event.detail))

    def _happened(self, event: Happened) -> None:
        for happening in event.events:
            held = self._held.get(happening.dispatch)
            if held is not None and held.stage in ("running", "cutting"):
                self._engine(held, happening)

    def _engine(self, held: Held, event: EngineEvent) -> None:
        match event:
            case NewTokens(chunk=chunk):
                self._write(held, chunk)
            case EngineFinished():
                self._prefill += event.prefill
                held.stage, held.rollout = "storing", held.rolled_out(event, self._name)
                self._do(Store(held.rollout))
            case EngineCut():
                # Once more from the first token: the hot store may have lost the beginning.
                self._write(held, Journal(0, event.tokens, event.logprobs, event.spans))
                if event.kv is not None and held.reader:
                    held.exporting = True
                    self._do(Export(event.dispatch, event.kv, held.reader))
                self._close(held)
            case EngineFailed(code=code, detail=detail):
                self._end(held, held.failed(self._name, code, detail))

    def _stored(self, event: Stored) -> None:
        for dispatch, ref in event.rollouts:
            held = self._held.get(dispatch)
            if held is not None and held.rollout is not None:
                self._end(held, held.finished(held.rollout, ref))

    def _exported(self, event: Exported) -> None:
        held = self._held.get(event.dispatch)
        if held is None or not held.exporting:
            # Its fact could not wait, and no one knows of this ticket.
            self._release(event.ticket)
            return
        held.exporting, held.ticket = False, event.ticket

    def _still_open(self, event: StillOpen) -> None:
        self._holding.keep(event.exports, self._now)

    def _release(self, ticket: KvTicket | None) -> None:
        if ticket is not None:
            self._do(Release(ticket))

    def _write(self, held: Held, chunk: Journal) -> None:
        n = journals.length(chunk)
        if n:
            held.written = max(held.written, chunk.start + n)
            ref = JournalRef(held.assign.key, held.assign.dispatch, chunk.start + n)
            self._do(Write(ref, chunk))

    def _journalled(self, event: Journalled) -> None:
        for dispatch, tokens in event.watermarks:
            held = self._held.get(dispatch)
            if held is not None:
                held.journalled = max(held.journalled, tokens)

    def _close(self, held: Held) -> None:
        """It is cut; the fact waits until all that was drawn is journalled, and its KV held."""
        held.stage, held.since = "closing", self._now
        self._closing.add(held.assign.dispatch)

    def _end(self, held: Held, fact: Terminal) -> None:
        dispatch = held.assign.dispatch
        del self._held[dispatch]
        self._outbox[dispatch] = fact
        if isinstance(fact, Cut) and fact.ticket is not None:
            self._holding.add(dispatch, fact.ticket, self._now)
        self._do(Publish((fact,), self._fence))

    # --- time and leaving -------------------------------------------------------------------------

    def _planner_seen(self, event: PlannerSeen) -> None:
        if self._fence is None or event.fence >= self._fence:
            self._fence, self._heard = event.fence, self._now

    def _leave(self, _: Leave | Drain | None) -> None:
        self.draining = True
        self._cut_all(list(self._held))

    def _tick(self, _: Tick) -> None:
        self._holding.expire(self._now)
        if self._now - self._published >= self._limits.republish:
            self._published = self._now
            if self._outbox:
                self._do(Publish(tuple(self._outbox.values()), self._fence, again=True))
        if self._now - self._heard >= self._limits.orphan and not self._gone:
            self._gone = True
            self._do(Gone(orphaned=True, unable=self._unable))

    def _proceed(self) -> None:
        """Do what has become possible: end closed samples, load, leave."""
        for held in [self._held[dispatch] for dispatch in self._closing]:
            if held.closed or self._now - held.since >= self._limits.close:
                self._closing.discard(held.assign.dispatch)
                self._end(held, held.cut(self._name))
        idle = not self._held and not self.draining and not self._resting.under_way
        command = self._loading.begin(self._now) if idle else None
        if command is not None:
            self.policy = None
            self._do(Load(command.policy, command.index))
        empty = not self._held and not self._outbox and not self._holding.dispatches
        if self.draining and empty and not self._gone:
            self._gone = True
            self._do(Gone(orphaned=False, unable=self._unable))

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)
