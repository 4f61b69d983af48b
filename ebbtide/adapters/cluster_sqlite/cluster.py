"""The local object store as `ebbtide.ports.Cluster`.

Every process opens the same file. Writes and lists run on one thread of this instance, so a
writer that waits for another process never blocks the loop; a watch asks SQLite's data_version
(7 microseconds, no lock) some 25 times a second and reads history only when it moved.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ebbtide import objects
from ebbtide.adapters.cluster_sqlite.pod_logs import follow_lines, log_file, read_lines
from ebbtide.adapters.cluster_sqlite.store import HISTORY, SqlTable, bookmark, connect, transaction
from ebbtide.errors import NotFound, Refused
from ebbtide.objects import Key
from ebbtide.ports import Change, Clock, Resource

T = TypeVar("T")
POLL_SECONDS = 0.04
_BOOKMARK_SECONDS = 2.0
_BATCH = 500


@asynccontextmanager
async def open_cluster(
    path: Path, *, clock: Clock, logs: Path | None = None, history: int = HISTORY
) -> AsyncIterator[SqliteCluster]:
    """Open the store at `path`, making it where there is none.

    `logs`: folder of the pods' logs, by default beside the file. `history`: changes kept for
    watches.
    """
    folder = logs or path.parent / "logs"
    cluster = SqliteCluster(path=path, clock=clock, logs=folder, history=history)
    try:
        yield cluster
    finally:
        await cluster.close()


class SqliteCluster:
    """Objects in the SQLite file at `path`, logs in the folder `logs`."""

    def __init__(self, *, path: Path, clock: Clock, logs: Path, history: int) -> None:
        self._clock = clock
        self._history = history
        self._logs = logs
        self._writer = connect(path)
        self._watcher = connect(path)  # only its data_version sees this process's own writes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="objects")

    async def close(self) -> None:
        """Finish what runs and close the file."""
        await asyncio.to_thread(self._thread.shutdown)
        self._writer.close()
        self._watcher.close()

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        return await self._read(partial(objects.get, key=Key(kind, namespace, name)))

    async def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Resource], str]:
        def read(table: SqlTable) -> tuple[list[Resource], str]:
            return table.select(kind, namespace, labels), str(table.version())

        return await self._read(read)

    async def create(self, resource: Resource) -> Resource:
        uid = str(uuid.uuid4())
        return await self._write(
            lambda table, now: objects.create(table, resource, uid=uid, now=now)
        )

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        key = Key(kind, namespace, name)
        return await self._write(
            lambda table, now: objects.patch(table, key, patch, expect=resource_version, now=now)
        )

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        key = Key(kind, namespace, name)

        def write(table: SqlTable, now: str) -> Resource:
            return objects.patch_status(table, key, status, expect=resource_version, now=now)

        return await self._write(write)

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str | None = None,
        grace: float | None = None,
    ) -> None:
        key = Key(kind, namespace, name)
        await self._write(
            lambda table, now: objects.delete(table, key, uid=uid, now=now, grace=grace)
        )

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        position = _position(since)
        told, spoke_at = position, self._clock.now()
        while True:
            mark = self._data_version()
            changes, position = await self._changes(kinds, namespace, position)
            for change in changes:
                yield change
            if changes:
                told, spoke_at = position, self._clock.now()
            elif position > told and self._clock.now() - spoke_at >= _BOOKMARK_SECONDS:
                yield bookmark(position)
                told, spoke_at = position, self._clock.now()
            if len(changes) < _BATCH:
                await self._moved(mark, told < position)

    async def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        path = log_file(self._logs, namespace, pod)
        if not path.exists():
            raise NotFound(f"there is no log of pod {namespace}/{pod}")
        if follow:
            ended = partial(self._ended, namespace, pod)
            async for line in follow_lines(path, tail=tail, clock=self._clock, ended=ended):
                yield line
            return
        for line in await asyncio.to_thread(read_lines, path, tail):
            yield line

    async def _ended(self, namespace: str, pod: str) -> bool:
        try:
            found = await self.get("Pod", namespace, pod)
        except NotFound:
            return True
        return found.status.get("phase") in ("Succeeded", "Failed")

    async def _moved(self, mark: int, owes_bookmark: bool) -> None:
        """Return once the file has changed since `mark`, or when a bookmark may be due."""
        until = self._clock.now() + _BOOKMARK_SECONDS
        while self._data_version() == mark:
            if owes_bookmark and self._clock.now() >= until:
                return
            await self._clock.sleep(POLL_SECONDS)

    async def _changes(
        self, kinds: Sequence[str], namespace: str | None, since: int
    ) -> tuple[Sequence[Change], int]:
        return await self._read(lambda table: table.changes(kinds, namespace, since, _BATCH))

    def _data_version(self) -> int:
        return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    async def _read(self, work: Callable[[SqlTable], T]) -> T:
        return await self._on_thread(partial(self._transact, "DEFERRED", work))

    async def _write(self, work: Callable[[SqlTable, str], T]) -> T:
        def stamped(table: SqlTable) -> T:
            return work(table, objects.rfc3339(self._clock.wall()))

        return await self._on_thread(partial(self._transact, "IMMEDIATE", stamped))

    def _transact(self, mode: str, work: Callable[[SqlTable], T]) -> T:
        with transaction(self._writer, mode, history=self._history) as table:
            return work(table)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _position(since: str) -> int:
    if not since.isdecimal():
        raise Refused(f"cannot watch from version {since!r}: take the one that list returned")
    return int(since)
