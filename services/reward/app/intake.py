"""Takes requests from the work queue, as many as the breaker allows, and settles each.

A request is acknowledged only after its verdict is published; until then the broker is told
that work goes on. At the drain, what is not done in time goes back to the queue.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from ebbtide import streams
from ebbtide.errors import Temporary
from ebbtide.logs import Log
from ebbtide.ports import Bus, Clock, Consumer, Delivery
from ebbtide.wire import ScoreReady, ScoreRequest, TurnReady, decode
from services.reward.app.metrics import RewardMetrics
from services.reward.core import Breaker

_MOST_AT_ONCE = 256
_FETCH_SECONDS = 0.5
_PAUSE_SECONDS = 0.1
_OPEN_AGAIN_SECONDS = 1.0


class Scores(Protocol):
    """What the intake hands requests to."""

    async def ready(self, request: ScoreRequest) -> ScoreReady | TurnReady | None: ...


class Publishes(Protocol):
    """What the intake hands verdicts to."""

    async def publish(self, ready: ScoreReady | TurnReady, attempt: int) -> None: ...


class Intake:
    """`run` until drained."""

    def __init__(
        self,
        *,
        bus: Bus,
        scoring: Scores,
        outlet: Publishes,
        breaker: Breaker,
        clock: Clock,
        metrics: RewardMetrics,
        log: Log,
        job_uid: str,
        capacity: int,
    ) -> None:
        self._bus = bus
        self._scoring = scoring
        self._outlet = outlet
        self._breaker = breaker
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._job_uid = job_uid
        self._capacity = capacity
        self._held: dict[asyncio.Task[None], Delivery] = {}
        self._settled = asyncio.Event()

    @property
    def busy(self) -> int:
        """Requests taken and not yet settled."""
        return len(self._held)

    async def run(self, drain: asyncio.Event, *, drain_seconds: float) -> None:
        """Work until `drain` is set; then finish within `drain_seconds` or hand back."""
        consumer = await self._open(drain)
        if consumer is None:
            return
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self._keep_alive(), name="keep requests")
                await self._take(consumer, group, drain)
                await self._finish(drain_seconds)
                keeper.cancel()
        finally:
            await consumer.close()

    async def _open(self, drain: asyncio.Event) -> Consumer | None:
        """The job's work queue, which the planner makes; None if the drain comes first."""
        durable, subject = streams.scorers(self._job_uid), streams.scoring(self._job_uid)
        while not drain.is_set():
            try:
                return await self._bus.consume(streams.SCORING, durable, subject)
            except Temporary as error:
                self._log.warning("work queue not there yet", why=str(error))
                await self._clock.sleep(_OPEN_AGAIN_SECONDS)
        return None

    async def _take(
        self, consumer: Consumer, group: asyncio.TaskGroup, drain: asyncio.Event
    ) -> None:
        while not drain.is_set():
            self._metrics.breaker_open.set(self._breaker.open)
            allowed = self._breaker.allowance(self._clock.now(), self.busy, self._capacity)
            if not allowed:
                await self._pause()
                continue
            for delivery in await consumer.fetch(min(allowed, _MOST_AT_ONCE), _FETCH_SECONDS):
                task = group.create_task(self._settle(delivery))
                self._held[task] = delivery
                task.add_done_callback(self._let_go)
            self._metrics.in_flight.set(self.busy)

    async def _pause(self) -> None:
        self._settled.clear()
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            return

    def _let_go(self, task: asyncio.Task[None]) -> None:
        del self._held[task]
        self._settled.set()

    async def _settle(self, delivery: Delivery) -> None:
        try:
            request = decode(delivery.data, ScoreRequest)
        except msgspec.DecodeError as error:
            self._log.error("request dropped: malformed", why=str(error))
            await delivery.ack()
            return
        ready = await self._scoring.ready(request)
        if ready is None:
            await delivery.nak(self._breaker.rest)
            return
        await self._outlet.publish(ready, request.attempt)
        await delivery.ack()

    async def _keep_alive(self) -> None:
        while True:
            await self._clock.sleep(streams.CONSUMERS[streams.SCORING].ack_wait / 3)
            for delivery in list(self._held.values()):
                await delivery.in_progress()

    async def _finish(self, seconds: float) -> None:
        if self._held:
            _, late = await asyncio.wait(self._held, timeout=seconds)
            for task in late:
                task.cancel()
            self._log.info("drained", handed_back=len(late))
