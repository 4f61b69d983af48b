"""The prefill service's shell: receive, ask the machine, perform its effects, tell the planner."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from ebbtide import streams
from ebbtide.engines.loading import load_policy
from ebbtide.errors import EbbtideError, Permanent, Refused, Temporary
from ebbtide.ports import Blobs, Bus, Clock, Engine, KvData, Transfer
from ebbtide.runtime import Process
from ebbtide.tracing import StepTrace
from ebbtide.wire import (
    CommandReply,
    KvKey,
    PlannerBeat,
    PrefillCommand,
    Refusal,
    TicketReply,
    TicketRequest,
    decode,
    encode,
)
from services.prefill.app.metrics import PrefillMetrics
from services.prefill.core.desk import Limits
from services.prefill.core.messages import (
    Answer,
    Asked,
    Commanded,
    Compute,
    Computed,
    ComputeFailed,
    Drop,
    Effect,
    Event,
    Export,
    Exported,
    Gone,
    Leave,
    Load,
    LoadFailed,
    PlannerSeen,
    PolicyLoaded,
    Release,
    Reply,
    StillOpen,
    Tick,
)
from services.prefill.core.service import Service
from services.prefill.core.tracing import Prefilled, prefilled
from services.prefill.settings import PrefillSettings

TICK_SECONDS = 0.25
_AT_ONCE = 4096
"""Requests in hand; the machine refuses before there are so many."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What the service works with."""

    settings: PrefillSettings
    limits: Limits
    blobs: Blobs
    bus: Bus
    engine: Engine
    transfer: Transfer
    clock: Clock


class Shell:
    """One prefill service. `run` returns once nothing is owed to anybody."""

    def __init__(self, *, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._service = Service(
            name=world.settings.pod,
            incarnation=uuid.uuid4().hex,
            limits=world.limits,
            now=world.clock.now(),
        )
        self._metrics = PrefillMetrics(process.registry)
        self._kept: dict[KvKey, KvData] = {}
        self._untold: list[Prefilled] = []
        self._answers: dict[int, asyncio.Future[TicketReply]] = {}
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._gone: asyncio.Future[Gone] = asyncio.get_running_loop().create_future()
        self._perform: dict[type[Effect], Callable[..., None]] = {
            Answer: self._answer,
            Compute: lambda e: self._spawn(self._compute(e), "compute"),
            Export: lambda e: self._spawn(self._export(e, self._kept[e.key]), "export"),
            Release: lambda e: world.transfer.release(e.ticket),
            Drop: self._drop,
            Load: lambda e: self._spawn(self._load(e), "load"),
            Gone: self._leave,
        }

    async def run(self) -> None:
        """Serve until the service has left.

        Raises Temporary if it was orphaned; Permanent or Temporary if its policy does not load.
        """
        for name, work in (
            ("beats", self._beat),
            ("ticks", self._tick),
            ("planner", self._hear_planner),
            ("drain", self._drain),
        ):
            self._process.spawn(work(), name=name)
        uid, bus = self._world.settings.job_uid, self._world.bus
        health = self._process.health
        health.require_ready("broker", lambda: "" if bus.connected else "broker is lost")
        commands = bus.serve(streams.prefill(uid, self._world.settings.pod), self._command)
        requests = bus.serve(streams.tickets(uid), self._ticket, at_once=_AT_ONCE)
        async with commands, requests:
            health.ready = True
            gone = await self._gone
            self._trace()
            await self._say()
        _explain(gone)

    def post(self, event: Event) -> None:
        """Have the machine take `event` in, and perform what it says."""
        self._step(event)

    def _step(self, event: Event) -> CommandReply | None:
        before = (self._service.state, self._service.policy)
        reply: CommandReply | None = None
        for effect in self._service.step(event, self._world.clock.now()):
            if isinstance(effect, Reply):
                reply = effect.reply
            else:
                self._perform[type(effect)](effect)
        if before != (self._service.state, self._service.policy):
            self._changed.set()
        return reply

    # --- what happens -----------------------------------------------------------------------------

    async def _command(self, data: bytes) -> bytes:
        try:
            command = msgspec.msgpack.decode(data, type=PrefillCommand)
        except msgspec.DecodeError as error:
            return encode(Refusal("invalid", f"not a command to the prefill service: {error}"))
        reply = self._step(Commanded(command))
        assert reply is not None, "every command is answered"
        return encode(reply)

    async def _ticket(self, data: bytes) -> bytes:
        try:
            ask = decode(data, TicketRequest)
        except msgspec.DecodeError as error:
            return encode(Refusal("invalid", f"not a request for a ticket: {error}"))
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.post(Asked(number, ask))
        return encode(await answer)

    async def _tick(self) -> None:
        while True:
            await self._world.clock.sleep(TICK_SECONDS)
            self._trace()
            self.post(StillOpen(len(self._world.transfer.held())))
            self.post(Tick())

    async def _drain(self) -> None:
        await self._process.drain.wait()
        self.post(Leave())

    async def _hear_planner(self) -> None:
        async with self._world.bus.beats(streams.planner(self._world.settings.job_uid)) as beats:
            async for data in beats:
                try:
                    self.post(PlannerSeen(decode(data, PlannerBeat).fence))
                except msgspec.DecodeError as error:
                    self._process.log.warning("no planner's beat", why=str(error))

    async def _beat(self) -> None:
        while True:
            self._changed.clear()
            await self._say()
            try:
                async with asyncio.timeout(self._world.settings.beat_seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _say(self) -> None:
        settings = self._world.settings
        beat = self._service.heartbeat(self._world.engine.stats())
        self._metrics.seen(beat, exports=self._service.desk.exports)
        subject = streams.beat(settings.job_uid, "prefill", settings.pod)
        await self._world.bus.beat(subject, encode(beat))

    # --- what is done -----------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._process.spawn(work, name=name)

    def _answer(self, effect: Answer) -> None:
        self._metrics.answered(effect.reply)
        future = self._answers.pop(effect.number)
        if not future.done():
            future.set_result(effect.reply)

    def _drop(self, effect: Drop) -> None:
        self._kept.pop(effect.key)

    async def _compute(self, effect: Compute) -> None:
        """A broken engine ends the process: actors compute, and another is started."""
        began, wall = self._world.clock.now(), self._world.clock.wall()
        try:
            kv = await self._world.engine.prefill(effect.policy, effect.prompt)
        except Refused as error:
            self.post(ComputeFailed(effect.key, str(error)))
            return
        assert kv.key == effect.key, "the engine's KV is that of the prompt"
        self._metrics.computed(self._world.clock.now() - began)
        if self._process.spans.on:
            trace = StepTrace(self._world.settings.job_uid, effect.attempt, effect.step)
            ended = self._world.clock.wall()
            self._untold.append(Prefilled(trace, effect.key.n_tokens, wall, ended))
        self._kept[effect.key] = kv
        self.post(Computed(effect.key, kv.data.nbytes))

    def _trace(self) -> None:
        """Tell of what was computed since the last time."""
        for span in prefilled(self._untold, self._world.settings.pod):
            self._process.spans.add(span)
        self._untold.clear()

    async def _export(self, effect: Export, kv: KvData) -> None:
        hold = self._world.settings.kv_hold_seconds
        ticket = None
        try:
            ticket = await self._world.transfer.export(kv, reader=effect.reader, seconds=hold)
        except Temporary as error:
            self._process.log.warning("KV not exported; the reader computes", why=str(error))
        self.post(Exported(effect.number, ticket))

    async def _load(self, effect: Load) -> None:
        world, log = self._world, self._process.log
        try:
            await load_policy(
                effect.policy,
                effect.index,
                blobs=world.blobs,
                engine=world.engine,
                tolerance=world.settings.probe_tolerance,
            )
        except (EbbtideError, OSError) as error:
            log.warning("policy not loaded", policy=effect.policy.n, why=str(error))
            self._metrics.loaded(well=False)
            lasting = not isinstance(error, Temporary | OSError)
            self.post(LoadFailed(effect.policy, str(error), lasting))
            return
        self._metrics.loaded(well=True)
        log.info("policy loaded", policy=effect.policy.n)
        self.post(PolicyLoaded(effect.policy, world.engine.caps.kv_layout))

    def _leave(self, effect: Gone) -> None:
        if not self._gone.done():
            self._gone.set_result(effect)


def _explain(gone: Gone) -> None:
    """Say by an error that the service did not leave as it should."""
    if gone.unable is not None:
        kind = Permanent if gone.unable.lasting else Temporary
        raise kind(f"policy {gone.unable.policy.n} does not load: {gone.unable.why}")
    if gone.orphaned:
        raise Temporary("no planner was heard for too long")
