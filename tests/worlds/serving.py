"""A gateway over fakes on a real socket, in a thread: for clients that cannot be given an app."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ebbtide.adapters.clock import SystemClock
from services.gateway.app.server import listening, serve
from tests.worlds.gateway import World

T = TypeVar("T")


class Served:
    """A world behind `url`. `do` runs a coroutine where the world lives."""

    def __init__(self, world: World, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self.url = url
        self._loop = loop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    def call(self, work: Callable[[], T]) -> T:
        async def inside() -> T:
            return work()

        return self.do(inside())


@contextmanager
def served(**settings: Any) -> Iterator[Served]:
    """Serve a new world until the block ends."""
    with listening("127.0.0.1", 0) as sock:
        loop = asyncio.new_event_loop()
        world = World(real_time=SystemClock(), **settings)  # real clients wait in real time
        drain = asyncio.Event()
        thread = threading.Thread(target=_run, args=(loop, world, sock, drain))
        thread.start()
        try:
            yield Served(world, f"http://127.0.0.1:{sock.getsockname()[1]}", loop)
        finally:
            loop.call_soon_threadsafe(drain.set)
            thread.join()


def _run(
    loop: asyncio.AbstractEventLoop, world: World, sock: socket.socket, drain: asyncio.Event
) -> None:
    async def main() -> None:
        world.closing = drain
        await serve(world.app(), sock, drain)

    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
    loop.close()
