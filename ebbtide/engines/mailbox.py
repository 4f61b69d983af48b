"""Commands into an engine's thread, events out of it into asyncio; which dispatches came."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from ebbtide.ports import EngineEvent
from ebbtide.wire import Dispatch

T = TypeVar("T")


class Seen:
    """The dispatches that came lately, so that a repeated submit is known as one."""

    def __init__(self, most: int = 1 << 16) -> None:
        self._most = most
        self._seen: OrderedDict[Dispatch, None] = OrderedDict()

    def first(self, dispatch: Dispatch) -> bool:
        """Note `dispatch`; whether it is new."""
        if dispatch in self._seen:
            return False
        self._seen[dispatch] = None
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return True


class Commands(Generic[T]):
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[T] = SimpleQueue()

    def put(self, command: T) -> None:
        self._queue.put(command)

    def take(self, *, wait: bool) -> list[T]:
        """All commands there are; with `wait`, sleeps until there is one."""
        taken = [self._queue.get()] if wait else []
        while True:
            try:
                taken.append(self._queue.get_nowait())
            except Empty:
                return taken


class Events:
    """The engine's thread posts; one asyncio task collects."""

    def __init__(self) -> None:
        self._posted: deque[EngineEvent] = deque()
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def post(self, events: Iterable[EngineEvent]) -> None:
        with self._lock:
            self._posted.extend(events)
            if self._posted:
                self._wake()

    def fail(self, error: BaseException) -> None:
        """The engine is broken: after what was posted, `collect` raises `error`."""
        with self._lock:
            self._failure = error
            self._wake()

    async def collect(self, timeout: float) -> list[EngineEvent]:
        """What was posted since the last call; empty after `timeout` seconds of silence."""
        arrived = asyncio.Event()
        with self._lock:
            if self._posted or self._failure:
                return self._drain()
            self._waiter = (asyncio.get_running_loop(), arrived)
        try:
            async with asyncio.timeout(timeout):
                await arrived.wait()
        except TimeoutError:
            pass  # silence is an answer too
        with self._lock:
            self._waiter = None
            return self._drain()

    def _drain(self) -> list[EngineEvent]:
        events = list(self._posted)
        self._posted.clear()
        if not events and self._failure:
            raise self._failure
        return events

    def _wake(self) -> None:
        if self._waiter:
            loop, arrived = self._waiter
            self._waiter = None
            loop.call_soon_threadsafe(arrived.set)
