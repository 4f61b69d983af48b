"""A broker in memory: requests, lossy beats, durable streams; as bad as its `Chaos` says.

One `FakeBus` is the whole broker; every party of a test is given the same object. It keeps the
real one's promises (dedup window, redelivery after `ack_wait`, work queues, takeover) and none
that the real one does not make.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from ebbtide import streams
from ebbtide.errors import DeadlineExceeded, Refused, Temporary
from ebbtide.ports import Clock, FactMessage, Handler
from ebbtide.testing.chaos import Chaos, calm
from ebbtide.testing.streams import FakeConsumer, FakeStream, matches

_BEATS_KEPT = 4096


class FakeBus:
    """Implements `ebbtide.ports.Bus`."""

    def __init__(self, *, clock: Clock, chaos: Chaos | None = None) -> None:
        self.chaos = chaos or calm()
        self.connected = True
        self._clock = clock
        self._services: dict[str, list[_Service]] = {}
        self._listeners: list[tuple[str, asyncio.Queue[bytes]]] = []
        self._streams: dict[str, FakeStream] = {}
        for spec in streams.STREAMS:
            self.stream(spec.name)

    # --- what a test does to the broker ---------------------------------------------------------

    def empty(self) -> None:
        """The broker restarts with empty storage: streams and consumers are gone."""
        for stream in self._streams.values():
            stream.lose()
        self._streams.clear()

    def stream(self, name: str) -> FakeStream:
        """The stream `name`, made if need be."""
        if name not in self._streams:
            spec = next(spec for spec in streams.STREAMS if spec.name == name)
            self._streams[name] = FakeStream(spec, clock=self._clock, chaos=self.chaos)
        return self._streams[name]

    # --- requests -------------------------------------------------------------------------------

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes:
        _check_size(data)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await self._ask(subject, data)
        raise DeadlineExceeded(f"no answer on {subject} in {timeout} s")

    async def _ask(self, subject: str, data: bytes) -> bytes:
        services = self._services.get(subject, []) if self.connected else []
        if not services:
            raise DeadlineExceeded(f"nobody serves {subject}")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.chaos.lost():
            await self._clock.sleep(self.chaos.pause())
            for service in services:
                for _ in range(self.chaos.copies()):
                    service.inbox.put_nowait((data, answer))
        if self.chaos.lost():
            await asyncio.Event().wait()
        return await answer

    @asynccontextmanager
    async def serve(self, subject: str, handler: Handler, at_once: int = 1) -> AsyncIterator[None]:
        service = _Service(handler)
        self._services.setdefault(subject, []).append(service)
        try:
            async with asyncio.TaskGroup() as group:
                name = f"serve {subject}"
                pumps = [group.create_task(service.run(), name=name) for _ in range(at_once)]
                yield
                for pump in pumps:
                    pump.cancel()
        finally:
            self._services[subject].remove(service)

    # --- beats ----------------------------------------------------------------------------------

    async def beat(self, subject: str, data: bytes) -> None:
        _check_size(data)
        if not self.connected or self.chaos.lost():
            return
        loop = asyncio.get_running_loop()
        for pattern, queue in self._listeners:
            if matches(pattern, subject):
                for _ in range(self.chaos.copies()):
                    loop.call_later(self.chaos.pause(), _offer, queue, data)

    @asynccontextmanager
    async def beats(self, subject: str) -> AsyncIterator[AsyncIterator[bytes]]:
        listener = (subject, asyncio.Queue[bytes](_BEATS_KEPT))
        self._listeners.append(listener)
        try:
            yield _drawn(listener[1])
        finally:
            self._listeners.remove(listener)

    # --- facts ----------------------------------------------------------------------------------

    async def publish_fact(self, subject: str, data: bytes, dedup_id: str) -> None:
        await self.publish_facts([FactMessage(subject, data, dedup_id)])

    async def publish_facts(self, facts: Sequence[FactMessage]) -> None:
        for fact in facts:
            _check_size(fact.data)
        await self._clock.sleep(self.chaos.pause())
        failed = [fact for fact in facts if not self._store(fact)]
        if failed:
            raise Temporary(f"{len(failed)} of {len(facts)} facts not acknowledged")

    def _store(self, fact: FactMessage) -> bool:
        found = [s for s in self._streams.values() if s.takes(fact.subject)]
        if not self.connected or not found:
            return False
        if not self.chaos.lost():
            return found[0].store(fact)
        if self.chaos.either():
            found[0].store(fact)
        return False

    async def consume(
        self, stream: str, durable: str, subject: str, replaces: str = ""
    ) -> FakeConsumer:
        return FakeConsumer(
            self.stream(stream).open(durable, subject, replaces=replaces),
            durable=durable,
            subject=subject,
            replaces=replaces,
            find=lambda: self._reachable(stream),
        )

    def _reachable(self, stream: str) -> FakeStream | None:
        return self.stream(stream) if self.connected else None


class _Service:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.inbox: asyncio.Queue[tuple[bytes, asyncio.Future[bytes]]] = asyncio.Queue()

    async def run(self) -> None:
        while True:
            data, answer = await self.inbox.get()
            reply = await self._handler(data)
            if not answer.done():
                answer.set_result(reply)


async def _drawn(queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await queue.get()


def _offer(queue: asyncio.Queue[bytes], data: bytes) -> None:
    with suppress(asyncio.QueueFull):
        queue.put_nowait(data)


def _check_size(data: bytes) -> None:
    if len(data) > streams.MAX_MESSAGE_BYTES:
        raise Refused(f"message of {len(data)} bytes; send large data as a blob reference")
