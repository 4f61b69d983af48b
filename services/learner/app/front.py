"""Rank 0's side to the planner: commands in, answers and beats out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ebbtide import streams
from ebbtide.errors import Fenced
from ebbtide.logs import Log
from ebbtide.ports import Bus
from ebbtide.wire import (
    Fence,
    LearnerBeat,
    LearnerCommand,
    LearnerReply,
    PlannerBeat,
    Refusal,
    decode,
    encode,
)
from services.learner.core.desk import Desk, Outcome
from services.learner.core.progress import Progress

BEAT_SECONDS = 1.0


class Front:
    """`instance`: name in the beat's subject. Without a desk the gang is still starting.

    `reference`: digest of the frozen weights, to be set before the first policy is shown.
    """

    def __init__(self, *, bus: Bus, uid: str, attempt: int, instance: str, log: Log) -> None:
        self._bus = bus
        self._log = log
        self._attempt = attempt
        self.reference = ""
        self._subject = streams.learner(uid, attempt)
        self._beats = streams.beat(uid, "learner", instance)
        self._planner = streams.planner(uid)
        self._later: Fence | None = None
        self._desk: Desk | None = None
        self._orders: asyncio.Queue[LearnerCommand] = asyncio.Queue()
        self._news = asyncio.Event()

    def open(self, progress: Progress) -> Desk:
        """Begin to take commands: the first policy is published."""
        self._desk = Desk(attempt=self._attempt, step=progress.step, last=progress.last)
        self._news.set()
        return self._desk

    async def serve(self, stopped: asyncio.Event) -> None:
        """Answer commands until `stopped`."""
        async with self._bus.serve(self._subject, self._answer):
            await stopped.wait()

    async def next_order(self, patience: float) -> LearnerCommand | None:
        """Work that a command started; None after `patience` seconds without any."""
        try:
            async with asyncio.timeout(patience):
                return await self._orders.get()
        except TimeoutError:
            return None

    def finish(self, command: LearnerCommand, outcome: Outcome) -> None:
        """Record how work ended; it is answered from now on, and heard of at once."""
        assert self._desk is not None
        self._desk.finish(command, outcome)
        self._news.set()

    async def beat(self, progress: Callable[[], Progress]) -> None:
        """Publish beats for ever, each second and at once when something changed.

        Raises Fenced once a planner of a later attempt was heard: this gang was replaced.
        """
        while True:
            if self._later is not None:
                raise Fenced(f"attempt {self._later.attempt} has begun, this is {self._attempt}")
            await self._bus.beat(self._beats, encode(self._beat(progress())))
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()

    async def hear_planner(self) -> None:
        """Take note, for ever, of the planner's signs of life."""
        async with self._bus.beats(self._planner) as beats:
            async for data in beats:
                try:
                    self._heed(decode(data, PlannerBeat).fence)
                except msgspec.DecodeError as error:
                    self._log.warning("no planner's beat", why=str(error))

    def _heed(self, fence: Fence) -> None:
        if fence.attempt > self._attempt:
            self._later = fence
            self._news.set()

    def _beat(self, progress: Progress) -> LearnerBeat:
        return LearnerBeat(
            attempt=self._attempt,
            policy=progress.policy,
            index=progress.index,
            phase=self._desk.phase if self._desk else "starting",
            step=progress.step,
            reference=self.reference,
        )

    async def _answer(self, data: bytes) -> bytes:
        return encode(self._reply(data))

    def _reply(self, data: bytes) -> LearnerReply:
        try:
            command: LearnerCommand = decode(data, LearnerCommand)  # type: ignore[arg-type]
        except msgspec.DecodeError as error:
            return Refusal("invalid", f"not a learner command: {error}")
        self._heed(command.fence)
        assert self._desk is not None, "serve is called after open"
        reply, order = self._desk.receive(command)
        if order is not None:
            self._orders.put_nowait(order)
            self._news.set()
        return reply
