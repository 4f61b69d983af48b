"""The planner's shell: receive, ask the core, perform the effects, record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from ebbtide import labels, streams
from ebbtide.errors import Conflict, Temporary
from ebbtide.ledger import Ledger
from ebbtide.ports import Consumer, Delivery, Resource
from ebbtide.runtime import Process
from ebbtide.wire import Beat, Fact, Fence, PlannerBeat, decode, encode
from services.planner.app.herald import Herald
from services.planner.app.office import Office
from services.planner.app.world import World
from services.planner.core.book import Book
from services.planner.core.config import Data, JobConfig
from services.planner.core.events import Event, Facts, Heard, PodsGone, Suspend, Tick
from services.planner.core.planner import Planner

_FETCH = 1024
_FETCH_SECONDS = 0.5
_BEAT_SECONDS = 1.0
_RETRY_SECONDS = 0.5


async def claim(world: World, config: JobConfig, book: Book) -> Ledger:
    """Replay the ledger into `book` and claim the next epoch; raises Fenced if it is another's."""
    settings = world.settings
    ledger = Ledger(
        blobs=world.blobs,
        clock=world.clock,
        uid=config.job_uid,
        writer=secrets.token_bytes(16),
    )
    await ledger.take_over(
        book.apply,
        attempt=settings.attempt,
        parent=lambda: book.newest_checkpoint() if settings.attempt > book.attempt else book.parent,
    )
    world.log.info("epoch claimed", epoch=book.epoch, attempt=book.attempt, step=book.next_step)
    return ledger


class Shell:
    """One planner that holds an epoch. `run` returns when the job has ended or is suspended."""

    def __init__(
        self,
        *,
        world: World,
        process: Process,
        config: JobConfig,
        data: Data,
        book: Book,
        ledger: Ledger,
        consumer: Consumer,
    ) -> None:
        self._world, self._process, self._consumer = world, process, consumer
        self._planner = Planner(
            config=config, data=data, book=book, pod=world.settings.pod, now=world.clock.now()
        )
        self._office = Office(
            world=world, ledger=ledger, consumer=consumer, post=self.post, spawn=self._spawn
        )
        self._herald = Herald(world=world, planner=self._planner)
        self._fence = Fence(book.attempt, book.epoch)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Drive the job. Raises Fenced when another planner has taken over."""
        for name, work in (
            ("office", self._office.run()),
            ("facts", self._hear_facts()),
            ("beats", self._hear_beats()),
            ("ticks", self._tick()),
            ("sign of life", self._beat()),
            ("status", self._herald.run()),
            ("pods", self._watch_pods()),
        ):
            self._process.spawn(work, name=name)
        self._process.health.ready = True
        finished = asyncio.create_task(self._office.finished(), name="finish")
        left = asyncio.create_task(self._leave(), name="leave")
        await asyncio.wait({finished, left, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        left.cancel()
        if self._failed.done():
            self._failed.result()
        if self._planner.ended:
            await self._herald.tell_outcome()
        else:
            await self._office.drained()
            await self._herald.tell()

    def post(self, event: Event) -> None:
        """Have the core take `event` in; what it asks for is performed in order."""
        try:
            self._office.take(self._planner.step(event, self._world.clock.now()))
        except Exception as error:  # noqa: BLE001 - whoever posted must not swallow it
            if not self._failed.done():
                self._failed.set_exception(error)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> object:
        return self._process.spawn(work, name=name)

    async def _leave(self) -> None:
        """On notice, begin nothing new; return once all that should last is saved."""
        await self._process.drain.wait()
        self.post(Suspend())
        while not self._planner.suspended:
            await self._world.clock.sleep(self._world.settings.tick_seconds)

    # --- what happens -----------------------------------------------------------------------------

    async def _hear_facts(self) -> None:
        while True:
            deliveries = await self._consumer.fetch(_FETCH, _FETCH_SECONDS)
            if deliveries:
                self._facts(deliveries)

    def _facts(self, deliveries: Sequence[Delivery]) -> None:
        tokens = self._office.keep(deliveries)
        arrived = []
        for token, delivery in zip(tokens, deliveries, strict=True):
            try:
                arrived.append((token, decode(delivery.data, Fact)))  # type: ignore[arg-type]
            except msgspec.DecodeError as error:
                self._world.log.error("a fact that is none", why=str(error))  # noqa: TRY400
        self.post(Facts(tuple(arrived)))  # type: ignore[arg-type]

    async def _hear_beats(self) -> None:
        uid = self._world.settings.job_uid
        async with self._world.bus.beats(streams.beats(uid)) as beats:
            async for data in beats:
                try:
                    self.post(Heard(decode(data, Beat)))  # type: ignore[arg-type]
                except msgspec.DecodeError as error:
                    self._world.log.warning("a beat that is none", why=str(error))

    async def _tick(self) -> None:
        while True:
            await self._world.clock.sleep(self._world.settings.tick_seconds)
            self.post(Tick())

    async def _beat(self) -> None:
        subject = streams.planner(self._world.settings.job_uid)
        while True:
            await self._world.bus.beat(subject, encode(PlannerBeat(self._fence)))
            await self._world.clock.sleep(_BEAT_SECONDS)

    async def _watch_pods(self) -> None:
        """Actors whose pods have ended need no lease to lapse."""
        cluster, settings = self._world.cluster, self._world.settings
        if cluster is None:
            return
        while True:
            try:
                pods, version = await cluster.list("Pod", settings.namespace)
                self._mourn(pods)
                async for change in cluster.watch(["Pod"], settings.namespace, version):
                    if change.type != "BOOKMARK":
                        self._mourn([change.resource])
            except (Conflict, Temporary) as error:
                self._world.log.info("watching pods again", why=str(error))
                await self._world.clock.sleep(_RETRY_SECONDS)

    def _mourn(self, pods: Sequence[Resource]) -> None:
        uid = self._world.settings.job_uid
        ended = tuple(
            pod.metadata.name
            for pod in pods
            if pod.metadata.labels.get(labels.JOB_UID) == uid
            and pod.metadata.labels.get(labels.ROLE) == "decode"
            and pod.status.get("phase") in ("Succeeded", "Failed")
        )
        if ended:
            self.post(PodsGone(ended))
