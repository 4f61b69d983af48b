"""The actor's shell: receive, ask the machine, perform its effects, tell the planner."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ebbtide import streams
from ebbtide.engines.loading import load_policy
from ebbtide.errors import EbbtideError, Permanent, Temporary
from ebbtide.ports import Admission, Blobs, Bus, Clock, Engine, Hot, KvData, Transfer
from ebbtide.runtime import Process
from ebbtide.wire import (
    ActorCommand,
    Assign,
    CommandReply,
    PlannerBeat,
    Refusal,
    Submit,
    decode,
    encode,
)
from services.decode.app.desk import Desk
from services.decode.app.handover import Handover
from services.decode.app.larder import RETRY_SECONDS, Larder
from services.decode.app.metrics import DecodeMetrics
from services.decode.app.prompts import Prompts
from services.decode.core.actor import Actor
from services.decode.core.held import Limits
from services.decode.core.messages import (
    Admit,
    Commanded,
    CutEngine,
    Effect,
    Event,
    Export,
    Fetch,
    Fetched,
    Gone,
    Happened,
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
    Store,
    Tick,
    Write,
)
from services.decode.settings import DecodeSettings

TICK_SECONDS = 0.25
ENGINE_SECONDS = 0.5
_SOON = 4
"""A change of state is followed by a beat after so small a part of the usual time."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What the actor works with."""

    settings: DecodeSettings
    slots: int
    blobs: Blobs
    bus: Bus
    hot: Hot
    engine: Engine
    clock: Clock
    transfer: Transfer | None = None
    ways: tuple[str, str] = ("none", "none")
    """How KV was to be handed over, and how it is."""


class Shell:
    """One actor. `run` returns once nothing is held any more."""

    def __init__(self, *, world: World, process: Process) -> None:
        settings = world.settings
        self._world, self._process = world, process
        sleeps, orphan = world.engine.caps.sleeps, settings.orphan_seconds
        limits = Limits(slots=world.slots, orphan=orphan, sleeps=sleeps)
        self._actor = Actor(
            name=settings.pod,
            incarnation=uuid.uuid4().hex,
            limits=limits,
            now=world.clock.now(),
        )
        self._desk = Desk(
            blobs=world.blobs,
            bus=world.bus,
            hot=world.hot,
            clock=world.clock,
            log=process.log,
            audit=Path(settings.audit_path) if settings.audit_path else None,
            post=self.post,
            drawing=lambda: self._actor.drawing,
            gather=settings.gather_seconds,
            pod=settings.pod,
            spans=process.spans,
        )
        self._larder = Larder(blobs=world.blobs, hot=world.hot, clock=world.clock)
        self._metrics = DecodeMetrics(process.registry, ways=world.ways)
        self._handover = Handover(
            transfer=world.transfer,
            engine=world.engine,
            metrics=self._metrics,
            log=process.log,
            hold=settings.kv_hold_seconds,
            patience=settings.kv_pull_seconds,
        )
        self._prompts = Prompts(
            bus=world.bus,
            transfer=world.transfer,
            engine=world.engine,
            metrics=self._metrics,
            log=process.log,
            job_uid=settings.job_uid,
            pod=settings.pod,
            ask=settings.kv_ask_seconds,
            patience=settings.kv_pull_seconds,
            keep=settings.kv_keep_mib << 20,
        )
        self._changed = asyncio.Event()
        self._gone: asyncio.Future[Gone] = asyncio.get_running_loop().create_future()
        self._perform = self._performers()

    async def run(self) -> None:
        """Serve commands until the actor has left.

        Raises Temporary if it was orphaned; Permanent or Temporary if its policy does not load.
        """
        for name, work in self._desk.tasks().items():
            self._process.spawn(work(), name=name)
        for name, work in (
            ("engine", self._engine),
            ("beats", self._beat),
            ("ticks", self._tick),
            ("planner", self._hear_planner),
            ("drain", self._drain),
        ):
            self._process.spawn(work(), name=name)
        settings = self._world.settings
        subject = streams.actor(settings.job_uid, settings.pod)
        bus, health = self._world.bus, self._process.health
        health.require_ready("broker", lambda: "" if bus.connected else "broker is lost")
        async with bus.serve(subject, self._command):
            health.ready = True
            gone = await self._gone
            await self._desk.finish()
            await self._say()
        _explain(gone)

    def _performers(self) -> dict[type[Effect], Callable[..., None]]:
        engine = self._world.engine
        return {
            Fetch: lambda e: self._spawn(self._fetch(e), "fetch"),
            Admit: lambda e: engine.submit(Admission(e.assign, e.prompt, e.resumed, e.kv)),
            CutEngine: lambda e: engine.cut(e.dispatch, export=e.export),
            Export: lambda e: self._spawn(self._export(e), "export"),
            Release: lambda e: self._handover.release(e.ticket),
            Write: lambda e: self._desk.chunks.put_nowait((e.ref, e.chunk)),
            Store: lambda e: self._desk.rollouts.put_nowait(e.rollout),
            Publish: self._publish,
            Settled: self._desk.settle,
            Load: lambda e: self._spawn(self._load(e), "load"),
            SleepEngine: lambda _: self._spawn(self._sleep(), "sleep"),
            Gone: self._leave,
        }

    def post(self, event: Event) -> None:
        """Have the machine take `event` in, and perform what it says."""
        self._step(event)

    def _step(self, event: Event) -> CommandReply | None:
        before = self._told()
        reply: CommandReply | None = None
        for effect in self._actor.step(event, self._world.clock.now()):
            if isinstance(effect, Reply):
                reply = effect.reply
            else:
                self._perform[type(effect)](effect)
        if before != self._told():
            self._changed.set()
        return reply

    def _told(self) -> tuple[object, ...]:
        """What a heartbeat tells at once: time is charged by the cause that it shows."""
        return self._actor.state, self._actor.policy, self._actor.busy

    # --- what happens -----------------------------------------------------------------------------

    async def _command(self, data: bytes) -> bytes:
        try:
            command = msgspec.msgpack.decode(data, type=ActorCommand)
        except msgspec.DecodeError as error:
            return encode(Refusal("invalid", f"not a command to an actor: {error}"))
        if isinstance(command, Submit) and command.assigns:
            self._process.place.step = command.assigns[0].key.step_issued
        reply = self._step(Commanded(command))
        assert reply is not None, "every command is answered"
        return encode(reply)

    async def _engine(self) -> None:
        while True:
            events = await self._world.engine.events(ENGINE_SECONDS)
            if events:
                self.post(Happened(tuple(events)))

    async def _tick(self) -> None:
        while True:
            await self._world.clock.sleep(TICK_SECONDS)
            self.post(self._handover.still_open())
            self.post(Tick())

    async def _drain(self) -> None:
        await self._process.drain.wait()
        self.post(Leave())

    async def _hear_planner(self) -> None:
        subject = streams.planner(self._world.settings.job_uid)
        async with self._world.bus.beats(subject) as beats:
            async for data in beats:
                try:
                    self.post(PlannerSeen(decode(data, PlannerBeat).fence))
                except msgspec.DecodeError as error:
                    self._process.log.warning("no planner's beat", why=str(error))

    async def _beat(self) -> None:
        """At once when the state changes, soon after it, and then regularly.

        The second one is what the planner learns an actor's pace from where a step is shorter
        than the time between two beats.
        """
        usual = self._world.settings.beat_seconds
        pause = usual
        while True:
            self._changed.clear()
            await self._say()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
                pause = usual / _SOON
            except TimeoutError:
                pause = min(2 * pause, usual)

    async def _say(self) -> None:
        settings = self._world.settings
        beat = self._actor.heartbeat(self._world.engine.stats())
        self._metrics.seen(
            beat.stats,
            policy=beat.policy,
            unjournalled=self._actor.unjournalled,
            outbox=len(beat.outbox),
        )
        subject = streams.beat(settings.job_uid, "decode", settings.pod)
        told = msgspec.structs.replace(beat, counted=self._metrics.totals.counted())
        await self._world.bus.beat(subject, encode(told))

    # --- what is done -----------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._process.spawn(work, name=name)

    def _publish(self, effect: Publish) -> None:
        if not effect.again:
            self._metrics.ended(effect.facts)
        self._desk.publish(effect)

    async def _fetch(self, effect: Fetch) -> None:
        """Try for as long as the sample is wanted here: whoever waits for it can cut it."""
        while self._actor.fetches(effect.assign.dispatch):
            try:
                found = await self._larder.fetch(effect.assign)
                if isinstance(found, Fetched):
                    kv = await self._kv(effect.assign, found)
                    found = msgspec.structs.replace(found, kv=kv)
                self.post(found)
            except Temporary as error:
                self._process.log.warning("prompt not read; trying again", why=str(error))
                await self._world.clock.sleep(RETRY_SECONDS)

    async def _kv(self, assign: Assign, found: Fetched) -> KvData | None:
        """What came with the sample by a ticket, or else its prompt from the prefill service."""
        if assign.ticket is None and assign.kv is not None and found.resumed is None:
            return await self._prompts.kv(assign, found.prompt)
        return await self._handover.pull(assign, found)

    async def _export(self, effect: Export) -> None:
        self.post(await self._handover.export(effect))

    async def _load(self, effect: Load) -> None:
        world, log = self._world, self._process.log
        began = world.clock.now()
        try:
            size = await load_policy(
                effect.policy,
                effect.index,
                blobs=world.blobs,
                engine=world.engine,
                tolerance=world.settings.probe_tolerance,
            )
        except (EbbtideError, OSError) as error:
            log.warning("policy not loaded", policy=effect.policy.n, why=str(error))
            self._metrics.not_loaded()
            lasting = not isinstance(error, Temporary | OSError)
            self.post(LoadFailed(effect.policy, str(error), lasting))
            return
        seconds = world.clock.now() - began
        self._metrics.loaded(seconds, size)
        log.info("policy loaded", policy=effect.policy.n, seconds=round(seconds, 3))
        self.post(PolicyLoaded(effect.policy))

    async def _sleep(self) -> None:
        why = ""
        try:
            await self._world.engine.sleep()
            self._prompts.forget()
            self._process.log.info("asleep: weights and KV given up")
        except EbbtideError as error:
            why = str(error)
            self._process.log.warning("cannot sleep", why=why)
        self.post(Slept(why))

    def _leave(self, effect: Gone) -> None:
        if not self._gone.done():
            self._gone.set_result(effect)


def _explain(gone: Gone) -> None:
    """Say by an error that the actor did not leave as it should."""
    if gone.unable is not None:
        kind = Permanent if gone.unable.lasting else Temporary
        raise kind(f"policy {gone.unable.policy.n} does not load: {gone.unable.why}")
    if gone.orphaned:
        raise Temporary("no planner was heard for too long")
