"""Operators that die, operators that meet, and an API server that cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from ebbtide.errors import Conflict, Temporary
from ebbtide.ports import Cluster, Resource
from tests.worlds.platform import ALL, Dead, Platform

pytestmark = pytest.mark.kube
T = TypeVar("T")


class Writes:
    """The cluster as seen by one operator: write number `at` goes wrong.

    `late`: after it was done, so that only its answer is lost.
    """

    def __init__(
        self, cluster: Cluster, at: int, error: BaseException, *, late: bool = False
    ) -> None:
        self._cluster, self._at, self._error, self._late = cluster, at, error, late
        self.count = 0
        self.get, self.list, self.watch = cluster.get, cluster.list, cluster.watch

    async def create(self, resource: Resource) -> Resource:
        return await self._write(self._cluster.create(resource))

    async def patch(self, *given: Any, **named: Any) -> Resource:
        return await self._write(self._cluster.patch(*given, **named))

    async def patch_status(self, *given: Any, **named: Any) -> Resource:
        return await self._write(self._cluster.patch_status(*given, **named))

    async def delete(self, *given: Any, **named: Any) -> None:
        await self._write(self._cluster.delete(*given, **named))

    async def _write(self, write: Awaitable[T]) -> T:
        self.count += 1
        if self.count != self._at:
            return await write
        if self._late:
            await write
        elif asyncio.iscoroutine(write):
            write.close()
        raise self._error


def without_numbers(names: list[str]) -> list[str]:
    """Numbers of actors and scorers may have been skipped; nothing else may differ."""
    return [name if "-1-" in name else name.rpartition("-")[0] for name in names]


async def whole(scene: Platform) -> bool:
    return without_numbers(await scene.kubelet.names()) == without_numbers(ALL)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [1, 2, 4, 6, 9, 12, 15])
async def test_an_operator_that_dies_at_any_write_is_continued_by_the_next(
    scene: Platform, at: int, late: bool
) -> None:
    await scene.submit()
    dying: list[Writes] = []

    def wrap(cluster: Cluster) -> Any:
        dying.append(Writes(cluster, at, Dead(), late=late))
        return dying[0]

    async def dead() -> bool:
        return dying[0].count >= at

    async with scene.operator(wrap=wrap):
        await scene.eventually(dead)
    async with scene.operator():
        await scene.until("Running")
        await scene.eventually(lambda: whole(scene))
        status = await scene.status()
        assert (status["attempt"], status.get("restarts", 0)) == (1, 0)


@pytest.mark.parametrize("error", [Conflict("it changed"), Temporary("500", delay=0.1)])
@pytest.mark.parametrize("at", [2, 5, 8, 11])
async def test_a_write_that_fails_is_made_up_for(
    scene: Platform, at: int, error: Exception
) -> None:
    await scene.submit()
    async with scene.operator(wrap=lambda cluster: Writes(cluster, at, error)):  # type: ignore[arg-type,return-value]
        await scene.until("Running")
        await scene.eventually(lambda: whole(scene))
        assert (await scene.status())["attempt"] == 1


async def test_of_two_operators_one_writes(scene: Platform) -> None:
    async with scene.operator() as first:
        await scene.submit()
        await scene.until("Running")
        async with scene.operator() as second:
            await scene.change({"suspend": True})
            await scene.until("Suspended")
            assert first.cache.heard
            assert not second.cache.heard


async def test_an_operator_catches_up_after_a_broken_connection(scene: Platform) -> None:
    async with proxy(scene.plane.url) as way, scene.operator(url=way.url):
        await scene.submit()
        await scene.until("Running")
        way.cut()
        await scene.change({"suspend": True})
        await asyncio.sleep(1.0)
        assert not await scene.holds("Suspended")
        way.mend()
        await scene.until("Suspended")
        assert await scene.kubelet.names() == []


class Way:
    """A path to the server that can be cut: open connections break, new ones are refused."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._open: set[asyncio.StreamWriter] = set()
        self._whole = True
        self.url = ""

    def cut(self) -> None:
        self._whole = False
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._whole = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        ends = {writer, far_writer}
        self._open |= ends
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Way]:
    parts = urlsplit(url)
    way = Way(str(parts.hostname), int(parts.port or 443))
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        server.close()
        way.cut()
        await server.wait_closed()
