"""Performs the core's effects, in order, durable before visible.

One task works through them. Appends that follow each other become one segment; what comes after
them waits until that is written. While one segment is under way the next ones gather, so nothing
waits when it is quiet, and a busy ledger gets few large segments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ebbtide import paths, streams
from ebbtide.errors import Conflict, DeadlineExceeded, NotFound, Temporary
from ebbtide.ledger import Ledger
from ebbtide.ports import Consumer, Delivery, FactMessage
from ebbtide.wire import (
    CommandReply,
    LearnerReply,
    Record,
    Ref,
    ScoreRequest,
    decode,
    digest,
    encode,
)
from services.planner.app.world import Library, World
from services.planner.core.effects import (
    LEARNER,
    Acknowledge,
    Append,
    AskScores,
    CommitManifest,
    Effect,
    Finish,
    Forget,
    LoadPrompts,
    Note,
    Report,
    ScalePool,
    Send,
    WriteBlob,
)
from services.planner.core.events import Event, ManifestCommitted, Replied

_RETRY_SECONDS = 0.5


class Office:
    """`post` takes answers to the core; `spawn` runs what need not be waited for."""

    def __init__(
        self,
        *,
        world: World,
        ledger: Ledger,
        consumer: Consumer,
        post: Callable[[Event], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._world, self._ledger, self._consumer = world, ledger, consumer
        self._post, self._spawn = post, spawn
        self._library = Library(blobs=world.blobs)
        self._todo: asyncio.Queue[Sequence[Effect]] = asyncio.Queue()
        self._deliveries: dict[int, Delivery] = {}
        self._tokens = 0
        self._finish: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self._does: dict[type[Effect], Callable[[Any], Coroutine[Any, Any, None]]] = {
            Acknowledge: self._acknowledge,
            Send: self._send,
            AskScores: self._ask_scores,
            Forget: self._forget,
            LoadPrompts: self._load_prompts,
            ScalePool: self._scale_pool,
            Report: self._report,
        }

    def take(self, effects: Sequence[Effect]) -> None:
        """Have these performed after all before them."""
        if effects:
            self._todo.put_nowait(effects)

    def keep(self, deliveries: Sequence[Delivery]) -> list[int]:
        """Tokens by which the core acknowledges these messages."""
        first = self._tokens
        self._tokens += len(deliveries)
        tokens = list(range(first, self._tokens))
        self._deliveries.update(zip(tokens, deliveries, strict=True))
        return tokens

    async def finished(self) -> Finish:
        """How the job ended, once everything before that is durable."""
        return await asyncio.shield(self._finish)

    async def drained(self) -> None:
        """Return once everything taken so far is performed."""
        await self._todo.join()

    async def run(self) -> None:
        """Perform effects for ever; raises Fenced once the ledger is another's."""
        while True:
            batches = [await self._todo.get()]
            while not self._todo.empty():
                batches.append(self._todo.get_nowait())
            await self._perform([effect for batch in batches for effect in batch])
            for _ in batches:
                self._todo.task_done()

    async def _perform(self, effects: Sequence[Effect]) -> None:
        records: list[Record] = []
        visible: list[Effect] = []
        for effect in effects:
            match effect:
                case Append(record=record):
                    records.append(record)
                case WriteBlob() | CommitManifest():
                    await self._flush(records, visible)
                    await self._write(effect)
                case _:
                    visible.append(effect)
        await self._flush(records, visible)

    async def _flush(self, records: list[Record], visible: list[Effect]) -> None:
        if records:
            await self._ledger.append(records)
            records.clear()
        for effect in visible:
            match effect:
                case Note(event=event, fields=fields):
                    self._world.log.info(event, **fields)
                case Finish():
                    self._finish.set_result(effect)
                case _:
                    self._spawn(self._does[type(effect)](effect), type(effect).__name__)
        visible.clear()

    # --- durable ----------------------------------------------------------------------------------

    async def _write(self, effect: WriteBlob | CommitManifest) -> None:
        """Write until it is written: what follows names it."""
        while True:
            try:
                await self._write_once(effect)
            except (Temporary, OSError) as error:
                self._world.log.warning("not written; trying again", why=str(error))
                await self._world.clock.sleep(_RETRY_SECONDS)
            else:
                return

    async def _write_once(self, effect: WriteBlob | CommitManifest) -> None:
        blobs = self._world.blobs
        if isinstance(effect, WriteBlob):
            await blobs.put(effect.path, effect.data)
            return
        data = effect.data
        if not await blobs.put_if_absent(effect.path, data):
            data = await blobs.get(effect.path)
        ref = Ref(effect.path, digest(data), len(data))
        self._post(ManifestCommitted(effect.step, ref))

    # --- visible; each may be lost, the core asks again ---------------------------------------------

    async def _acknowledge(self, effect: Acknowledge) -> None:
        known = [self._deliveries.pop(token, None) for token in effect.tokens]
        await self._try(self._consumer.ack([d for d in known if d is not None]))

    async def _send(self, effect: Send) -> None:
        settings = self._world.settings
        if effect.to == LEARNER:
            subject = streams.learner(settings.job_uid, settings.attempt)
        else:
            subject = streams.actor(settings.job_uid, effect.to)
        reply: CommandReply | LearnerReply | None = None
        try:
            answer = await self._world.bus.request(subject, encode(effect.command), effect.timeout)
            kind = LearnerReply if effect.to == LEARNER else CommandReply
            reply = decode(answer, kind)  # type: ignore[arg-type]
        except (DeadlineExceeded, Temporary) as error:
            command = type(effect.command).__name__
            self._world.log.debug("no answer", to=effect.to, command=command, why=str(error))
        self._post(Replied(effect.call, reply))

    async def _ask_scores(self, effect: AskScores) -> None:
        uid = self._world.settings.job_uid
        messages = [
            FactMessage(streams.scoring(uid), encode(request), self._dedup(request, effect.ask))
            for request in effect.requests
        ]
        await self._try(self._world.bus.publish_facts(messages))

    def _dedup(self, request: ScoreRequest, ask: int) -> str:
        epoch = self._ledger.epoch.n
        return (
            f"{request.key.job_uid}:{request.rollout.digest}:{request.rollout.path}:{epoch}.{ask}"
        )

    async def _forget(self, effect: Forget) -> None:
        for path in effect.paths:
            await self._try(self._world.blobs.delete(path))

    async def _load_prompts(self, effect: LoadPrompts) -> None:
        try:
            self._post(await self._library.load(effect))
        except Temporary as error:
            self._world.log.warning("prompts not read; trying again", why=str(error))

    async def _scale_pool(self, effect: ScalePool) -> None:
        """Set the pool's size; the operator may not have made the pool yet."""
        cluster, settings = self._world.cluster, self._world.settings
        if cluster is None:
            return
        spec = {"replicas": effect.replicas, "release": list(effect.release)}
        while True:
            try:
                await cluster.patch("DecodePool", settings.namespace, settings.job, {"spec": spec})
            except (NotFound, Conflict, Temporary) as error:
                self._world.log.debug("pool not scaled yet", why=str(error))
                await self._world.clock.sleep(_RETRY_SECONDS)
            else:
                return

    async def _report(self, effect: Report) -> None:
        report = effect.report
        path = paths.step_report(report.job_uid, report.step)
        data = report.model_dump_json(by_alias=True).encode()
        await self._try(self._world.blobs.put(path, data))
        await self._try(self._consumer.trim())

    async def _try(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (Temporary, OSError) as error:
            self._world.log.warning("not done; it will be asked for again", why=str(error))
