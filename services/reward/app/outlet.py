"""Publishes verdicts in batches, each before its request is acknowledged."""

from __future__ import annotations

import asyncio
import itertools

from ebbtide import streams
from ebbtide.errors import Temporary
from ebbtide.logs import Log
from ebbtide.ports import Bus, Clock, FactMessage
from ebbtide.tracing import NO_SPANS, Spans
from ebbtide.wire import ScoreReady, TurnReady, encode
from services.reward import core
from services.reward.app.judged import Judged, judged_spans

_BATCH = 256
_AGAIN_SECONDS = 0.5


class Outlet:
    """`run` beside the intake; `publish` returns once the stream has the fact."""

    def __init__(
        self, *, bus: Bus, clock: Clock, log: Log, instance: str, spans: Spans = NO_SPANS
    ) -> None:
        self._spans = spans
        self._bus = bus
        self._clock = clock
        self._log = log
        self._instance = instance
        self._numbers = itertools.count()
        self._queue: asyncio.Queue[tuple[FactMessage, Judged, asyncio.Future[None]]] = (
            asyncio.Queue()
        )

    async def publish(self, ready: ScoreReady | TurnReady, attempt: int) -> None:
        """Wait until the broker holds the verdict; a lost broker is waited for."""
        fact = FactMessage(
            subject=streams.fact(ready.key.job_uid, attempt, "score"),
            data=encode(ready),
            dedup_id=core.dedup_id(ready, attempt, self._instance, next(self._numbers)),
        )
        held = asyncio.get_running_loop().create_future()
        judged = Judged(ready, attempt, self._clock.wall() - ready.seconds)
        self._queue.put_nowait((fact, judged, held))
        await held

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._send([fact for fact, _, _ in batch])
            self._trace([judged for _, judged, _ in batch])
            for _, _, held in batch:
                if not held.done():
                    held.set_result(None)

    def _trace(self, batch: list[Judged]) -> None:
        if self._spans.on:
            for span in judged_spans(batch, self._instance, self._clock.wall()):
                self._spans.add(span)

    async def _send(self, facts: list[FactMessage]) -> None:
        while True:
            try:
                return await self._bus.publish_facts(facts)
            except Temporary as error:
                self._log.warning("verdicts not published yet", count=len(facts), why=str(error))
                await self._clock.sleep(_AGAIN_SECONDS)
