"""Sends frames to one client: heartbeats, a bounded wait for slow readers, an end on drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from services.gateway.core.problems import Problem
from services.gateway.core.sse import HEARTBEAT, Frame, encode

MEDIA_TYPE = "text/event-stream"


def wants_stream(accept: str) -> bool:
    """Whether the client asked for a stream."""
    return MEDIA_TYPE in accept.lower()


class Streams:
    """Counts the open streams of this process and refuses one too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    def enter(self) -> None:
        """Take a place."""
        if self.open >= self._limit:
            after = {"Retry-After": "5"}
            raise Problem("rate-limited", "Too many streams are open here.", headers=after)
        self.open += 1

    def leave(self) -> None:
        """Give the place back."""
        self.open -= 1


class EventStream(Response):
    """Frames of `source` as they come; the client reads at its own speed, within limits.

    Nothing is buffered here: the next frame is asked for once the last one is sent.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        source: AsyncIterator[Frame],
        *,
        streams: Streams,
        closing: asyncio.Event,
        heartbeat: float,
        send_seconds: float,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._source = source
        self._streams = streams
        self._closing = closing
        self._heartbeat = heartbeat
        self._send_seconds = send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope  # part of the interface
        self._streams.enter()
        tasks = [
            asyncio.ensure_future(work)
            for work in (self._send_all(send), _gone(receive), self._closing.wait())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if tasks[1] not in done:
                await self._write(send, b"", more=False)
        except TimeoutError:
            pass  # the client takes nothing: cut it, it can resume by its last id
        finally:
            self._streams.leave()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._say(send, start)
        await self._write(send, HEARTBEAT)
        async for frame in _with_heartbeats(self._source, self._heartbeat):
            await self._write(send, HEARTBEAT if frame is None else encode(frame))

    async def _write(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await self._say(send, {"type": "http.response.body", "body": body, "more_body": more})

    async def _say(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._send_seconds):
            await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _with_heartbeats(
    source: AsyncIterator[Frame], seconds: float
) -> AsyncIterator[Frame | None]:
    """Frames of `source`, and None whenever there was none for `seconds`."""
    waiting: asyncio.Future[Frame] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait([waiting], timeout=seconds)
            if not done:
                yield None
                continue
            try:
                frame = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield frame
    finally:
        if waiting is not None:
            waiting.cancel()
