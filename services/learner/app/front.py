"""Rank 0's side to the planner: commands in, answers and beats out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ebbtide import streams
from ebbtide.ports import Bus
from ebbtide.wire import LearnerBeat, LearnerCommand, LearnerReply, Refusal, decode, encode
from services.learner.core.desk import Desk, Outcome
from services.learner.core.progress import Progress

BEAT_SECONDS = 1.0


class Front:
    """`instance`: name in the beat's subject. Without a desk the gang is still starting."""

    def __init__(self, *, bus: Bus, uid: str, attempt: int, instance: str) -> None:
        self._bus = bus
        self._attempt = attempt
        self._subject = streams.learner(uid, attempt)
        self._beats = streams.beat(uid, "learner", instance)
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
        """Publish beats for ever, each second and at once when something changed."""
        while True:
            await self._bus.beat(self._beats, encode(self._beat(progress())))
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()

    def _beat(self, progress: Progress) -> LearnerBeat:
        return LearnerBeat(
            attempt=self._attempt,
            policy=progress.policy,
            index=progress.index,
            phase=self._desk.phase if self._desk else "starting",
            step=progress.step,
        )

    async def _answer(self, data: bytes) -> bytes:
        return encode(self._reply(data))

    def _reply(self, data: bytes) -> LearnerReply:
        try:
            command: LearnerCommand = decode(data, LearnerCommand)  # type: ignore[arg-type]
        except msgspec.DecodeError as error:
            return Refusal("invalid", f"not a learner command: {error}")
        assert self._desk is not None, "serve is called after open"
        reply, order = self._desk.receive(command)
        if order is not None:
            self._orders.put_nowait(order)
            self._news.set()
        return reply
