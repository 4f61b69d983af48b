"""Writes what a process says into the blob store, from a thread of its own.

Neither a loop that computes nor a store that does not answer holds it up, and it holds up nobody:
a process that is killed loses the lines of the last `seconds`, one that ends loses none. What the
store does not take now is written with the next lines.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ebbtide import paths
from ebbtide.adapters.blobs import open_blobs
from ebbtide.errors import EbbtideError
from ebbtide.kept_logs import Backlog, Parts
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Blobs
from ebbtide.settings import RoleSettings

_END_SECONDS = 5.0
"""Longest wait for the last lines."""
_PUT_SECONDS = 30.0


@contextmanager
def keeping(backlog: Backlog, settings: RoleSettings, log: Log) -> Iterator[None]:
    """While open, what is said is kept; at the end the rest of it is written."""
    folder = paths.pod_logs(settings.job_uid, backlog.role, settings.pod)
    try:
        blobs = open_blobs(settings.blobs_url, writable=[f"{folder}*"])
    except EbbtideError:
        yield  # the body fails by it, and says so
        return
    keeper = LogKeeper(
        backlog=backlog,
        blobs=blobs,
        place=(settings.job_uid, settings.pod),
        most_bytes=settings.log_mib << 20,
        seconds=settings.log_seconds,
        log=log,
    )
    keeper.start()
    try:
        yield
    finally:
        keeper.close()


class LogKeeper:
    """Takes lines from `backlog` every `seconds`. `place`: uid of the job, name of the pod."""

    def __init__(
        self,
        *,
        backlog: Backlog,
        blobs: Blobs,
        place: tuple[str, str],
        most_bytes: int,
        seconds: float,
        log: Log,
    ) -> None:
        self._backlog, self._blobs, self._log = backlog, blobs, log
        (self._uid, self._pod), self._most_bytes, self._seconds = place, most_bytes, seconds
        self._parts: Parts | None = None
        self._owed: dict[int, bytes] = {}
        self._drop: set[int] = set()
        self._failing = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, as far as the store takes it now."""
        self._closing.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            closing = False
            while not closing:
                closing = self._closing.wait(self._seconds)
                runner.run(self._write())

    async def _write(self) -> None:
        try:
            async with asyncio.timeout(_PUT_SECONDS):
                await self._write_all()
        except (EbbtideError, TimeoutError) as error:
            if not self._failing:
                self._log.warning("log is not kept for now", why=str(error))
            self._failing = True
        else:
            self._failing = False

    async def _write_all(self) -> None:
        if self._parts is None:
            self._parts = Parts(first=await self._next(), most_bytes=self._most_bytes)
        lines, left_out = self._backlog.take()
        change = self._parts.add(lines + (_said(left_out) if left_out else b""))
        self._owed |= change.put
        self._drop |= set(change.drop)
        for number in change.drop:
            self._owed.pop(number, None)
        for number in sorted(self._owed):
            await self._blobs.put(self._path(number), self._owed[number])
            del self._owed[number]
        for number in sorted(self._drop):
            await self._blobs.delete(self._path(number))
            self._drop.discard(number)

    async def _next(self) -> int:
        """Behind what an earlier process of this pod has left."""
        found = await self._blobs.list(paths.pod_logs(self._uid, self._backlog.role, self._pod))
        names = [path.rpartition("/")[2].removesuffix(".log") for path in found]
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)

    def _path(self, number: int) -> str:
        return paths.log_part(self._uid, self._backlog.role, self._pod, number)


def _said(left_out: int) -> bytes:
    words = {
        "at": rfc3339(time.time()),
        "level": "warning",
        "event": "lines were left out",
        "lines": left_out,
    }
    return json.dumps(words).encode() + b"\n"
