"""The prefill service's machine: `step(event, now) -> effects` (pure; protocol.md 6 and 7).

It serves one policy, which the planner names. Requests for any other are refused, and a refused
actor computes by itself: nothing that goes wrong here costs more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ebbtide.kv import kv_key
from ebbtide.loading import Loading
from ebbtide.wire import (
    Drain,
    EngineStats,
    Fence,
    LoadPolicy,
    Ok,
    PolicyRef,
    PrefillBeat,
    Refusal,
    TicketRequest,
)
from services.prefill.core.desk import Desk, Limits
from services.prefill.core.messages import (
    Asked,
    Commanded,
    Computed,
    ComputeFailed,
    Effect,
    Event,
    Exported,
    Gone,
    Leave,
    Load,
    LoadFailed,
    PlannerSeen,
    PolicyLoaded,
    Reply,
    StillOpen,
    Tick,
)

_TOKEN_BYTES = 4


class Service:
    """`name`: the pod; `incarnation`: this process of it."""

    def __init__(self, *, name: str, incarnation: str, limits: Limits, now: float) -> None:
        self.policy: PolicyRef | None = None
        self.layout = ""
        self.draining = False
        self._name, self._incarnation, self._limits = name, incarnation, limits
        self._fence: Fence | None = None
        self._heard = self._now = now
        self._number = 0
        self._loading = Loading(tries=limits.load_tries, pause=limits.load_pause)
        self._unable: LoadFailed | None = None
        self._gone = False
        self._effects: list[Effect] = []
        self.desk = desk = Desk(limits=limits, do=self._do)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            Commanded: lambda e: self._do(Reply(self._commanded(e.command))),
            Asked: self._asked,
            Computed: lambda e: desk.finished(e.key, e.size),
            ComputeFailed: lambda e: desk.failed(e.key, e.why),
            Exported: lambda e: desk.exported(e.number, e.ticket),
            StillOpen: lambda e: desk.still_open(e.exports),
            PolicyLoaded: self._loaded,
            LoadFailed: self._load_failed,
            PlannerSeen: self._planner_seen,
            Leave: self._leave,
            Tick: self._tick,
        }

    @property
    def state(self) -> str:
        """Loading | serving | draining | empty, for heartbeats."""
        if self.draining:
            return "draining"
        if self._loading.busy:
            return "loading"
        return "serving" if self.policy else "empty"

    def heartbeat(self, stats: EngineStats) -> PrefillBeat:
        """The next heartbeat."""
        self._number += 1
        desk = self.desk
        return PrefillBeat(
            instance=self._name,
            incarnation=self._incarnation,
            number=self._number,
            fence=self._fence,
            policy=self.policy,
            state=self.state,
            layout=self.layout,
            stats=stats,
            waiting=desk.waiting,
            computed=desk.computed,
            granted=desk.granted,
            granted_tokens=desk.granted_tokens,
            refused=desk.refused,
            load_failure=self._loading.why,
        )

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in `event`; returns what is to be done, in order."""
        self._now = now
        self._effects = []
        self._handlers[type(event)](event)
        self._proceed()
        return self._effects

    # --- commands and requests --------------------------------------------------------------------

    def _commanded(self, command: LoadPolicy | Drain) -> Ok | Refusal:
        if self._fence is not None and command.fence < self._fence:
            return Refusal("fenced", f"a newer planner commands: {self._fence}", seen=self._fence)
        self._fence, self._heard = command.fence, self._now
        if isinstance(command, Drain):
            self.draining = True
        elif self.draining:
            return Refusal("draining", "the service is leaving")
        elif self._loading.want(command, self.policy):
            self.desk.refuse_queued("policy", f"policy {command.policy.n} is to be loaded")
        return Ok(self._number + 1)

    def _asked(self, event: Asked) -> None:
        number, ask = event.number, event.ask
        refusal = self._refusal(ask)
        if refusal is not None:
            self.desk.refuse(number, *refusal)
        else:
            self._fence = max(self._fence or ask.fence, ask.fence)
            self.desk.ask(number, ask, self._now)

    def _refusal(self, ask: TicketRequest) -> tuple[str, str] | None:
        """Why nothing is computed for `ask`: code and detail."""
        if self._fence is not None and ask.fence < self._fence:
            return "fenced", f"a newer planner commands: {self._fence}"
        if self.draining or self._gone:
            return "draining", "the service is leaving"
        held = self.policy
        # A policy that is about to go takes nothing in, or its prompts would keep the next out.
        if held is None or self._loading.busy or ask.policy != held:
            return "policy", f"version {held.n if held else 'none'} is held"
        n = len(ask.prompt) // _TOKEN_BYTES - 1
        if n < 1 or kv_key(held, ask.prompt, n, self.layout) != ask.key:
            return "unknown", "the key is not that of this prompt under the policy and layout held"
        return None

    # --- policy -----------------------------------------------------------------------------------

    def _loaded(self, event: PolicyLoaded) -> None:
        if self._loading.succeeded(event.policy):
            self.policy, self.layout = event.policy, event.layout

    def _load_failed(self, event: LoadFailed) -> None:
        if self._loading.failed(event.policy, event.why, self._now):
            self._unable = event
            self.draining = True

    # --- time and leaving -------------------------------------------------------------------------

    def _planner_seen(self, event: PlannerSeen) -> None:
        if self._fence is None or event.fence >= self._fence:
            self._fence, self._heard = event.fence, self._now

    def _leave(self, _: Leave) -> None:
        self.draining = True

    def _tick(self, _: Tick) -> None:
        self.desk.expire(self._now)
        if self._now - self._heard >= self._limits.orphan and not self._gone:
            self._gone = True
            self._do(Gone(orphaned=True, unable=self._unable))

    def _proceed(self) -> None:
        """Do what has become possible: load, compute, leave."""
        idle = not self.desk.computing and not self.draining
        command = self._loading.begin(self._now) if idle else None
        if command is not None:
            self.policy, self.layout = None, ""
            self.desk.clear()
            self._do(Load(command.policy, command.index))
        if self._loading.under_way is None:
            self.desk.proceed()
        owed = self.desk.waiting or self.desk.exports or self.desk.computing
        if self.draining and not owed and not self._gone:
            self._gone = True
            self._do(Gone(orphaned=False, unable=self._unable))

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)
