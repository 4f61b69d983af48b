"""The supervisor's children: programs of this platform that must run, started again when they die."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from ebbtide.adapters.daemon import HOST, free_port, is_free
from ebbtide.errors import EbbtideError, Permanent, Refused
from ebbtide.exits import EXIT_PERMANENT, EXIT_REFUSED
from ebbtide.logs import Log

RUNNER, OPERATOR, GATEWAY = "ebbtide_operator.local", "ebbtide_operator", "services.gateway"
POLL_SECONDS = 0.1
END_SECONDS = 15.0
BACKOFF_SECONDS = (0.2, 10.0)
SERVER_BACKOFF_SECONDS = (0.1, 2.0)
STEADY_SECONDS = 30.0
"""A child that lived so long starts again at once if it dies."""
_HOPELESS: Mapping[int | None, type[EbbtideError]] = {
    EXIT_REFUSED: Refused,
    EXIT_PERMANENT: Permanent,
}
_LOOK_BYTES = 1 << 20


class Spawned(Protocol):
    """What asyncio gives for a process that it started."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Spawn = Callable[[str, Mapping[str, str]], Awaitable[Spawned]]


async def spawn(module: str, env: Mapping[str, str]) -> Spawned:
    """Start `python -m module` with this environment; raises OSError."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


class Said:
    """What the children said: `file` is the log that they share with their supervisor."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def mark(self) -> int:
        """The place in the log up to which it is written now."""
        return self._file.stat().st_size if self._file.exists() else 0

    def cause(self, name: str, since: int) -> str:
        """The last complaint of a child after `since`; empty if there is none."""
        with suppress(OSError), self._file.open("rb") as stream:
            stream.seek(max(since, self.mark() - _LOOK_BYTES))
            lines = stream.read(_LOOK_BYTES).decode("utf-8", "replace").splitlines()
            return next(filter(None, (_complaint(line, name) for line in reversed(lines))), "")
        return ""


def _complaint(line: str, name: str) -> str:
    plain = f"ebbtide {name}: "  # of a process that has no log yet
    if line.startswith(plain):
        return line.removeprefix(plain)
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return ""
    ours = event.get("role") == name and event.get("level") == "error"
    return str(event.get("why") or event.get("error") or "") if ours else ""


class Child:
    """One process that must run: started, watched, started again.

    `trouble` is what it suffers from while it is tried again; `changed` is called when that or
    the pid has changed.
    """

    def __init__(
        self,
        name: str,
        module: str,
        env: Mapping[str, str],
        *,
        log: Log,
        said: Said,
        changed: Callable[[], None],
        spawn: Spawn = spawn,
        backoff: tuple[float, float] = BACKOFF_SECONDS,
    ) -> None:
        self.name = name
        self.pid = 0
        self.trouble = ""
        self._module, self._log, self._said, self._changed = module, log, said, changed
        self._spawn, self._backoff = spawn, backoff
        own = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
        self._env = own | dict(env) | {"EBBTIDE_POD": name}
        self._health_port = 0
        self._was_ready = False
        self._process: Spawned | None = None

    async def run(self) -> None:
        """Keep it running until cancelled.

        Raises Refused or Permanent if it says that of its start and has never been ready: what has
        worked before is tried again, whatever it says.
        """
        pause = self._backoff[0]
        clock = asyncio.get_running_loop()
        while True:
            began = clock.time()
            await self._live()
            steady = clock.time() - began > STEADY_SECONDS
            pause = self._backoff[0] if steady else min(pause * 2, self._backoff[1])
            await asyncio.sleep(pause)

    async def _live(self) -> None:
        """One life, from its start to what its end means."""
        since = self._said.mark()
        try:
            self._health_port = free_port()  # another one might be taken by now
            health = {"EBBTIDE_HEALTH_PORT": str(self._health_port)}
            self._process = await self._spawn(self._module, self._env | health)
        except OSError as error:
            self._complain(f"cannot be started: {error.strerror or error}", None)
            return
        self.pid = self._process.pid
        self._changed()
        code = await self._process.wait()
        why = self._said.cause(self.name, since)
        hopeless = _HOPELESS.get(code)
        if hopeless and not self._was_ready and is_free(self._health_port):
            raise hopeless(f"the {self.name} cannot start: {why or f'it ended with code {code}'}")
        self._complain(f"ended with code {code}{f': {why}' if why else ''}", code)

    def _complain(self, trouble: str, code: int | None) -> None:
        self.trouble = f"{trouble}; it is started again"
        self._log.warning(
            "process ended; starting it again", child=self.name, code=code, why=trouble
        )
        self._changed()

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Return once it answers that it is ready."""
        while not await self.answers(http):  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(POLL_SECONDS)

    async def answers(self, http: httpx.AsyncClient) -> bool:
        """Whether it says now that it is ready; if so, it has no trouble any more."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        with suppress(httpx.HTTPError):
            url = f"http://{HOST}:{self._health_port}/readyz"
            if (await http.get(url, timeout=2.0)).is_success:
                self._was_ready, self.trouble = True, ""
                return True
        return False

    async def end(self) -> None:
        """SIGTERM, then SIGKILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class Server(Protocol):
    """What `keep` needs of a broker or a hot store."""

    def alive(self) -> bool: ...
    async def start(self) -> None: ...


async def keep(
    server: Server,
    *,
    name: str,
    log: Log,
    told: Callable[[str], None],
    backoff: tuple[float, float] = SERVER_BACKOFF_SECONDS,
) -> None:
    """Start a server again when it dies, for ever; what it held is made again by who needs it.

    It comes back where jobs know it, which may have to wait. `told` hears what is in the way, and
    an empty string once it is back.
    """
    pause, trouble = backoff[0], ""
    while True:
        await asyncio.sleep(pause)
        if server.alive():
            continue
        if not trouble:
            log.warning("server ended; starting it again", server=name)
        trouble, before = await _try(server), trouble
        pause = min(pause * 2, backoff[1]) if trouble else backoff[0]
        if trouble and trouble != before:
            log.warning("server cannot come back yet; trying again", server=name, why=trouble)
        elif before and not trouble:
            log.warning("server is back", server=name)
        told(trouble)


async def _try(server: Server) -> str:
    """Start the server; what is in the way, or an empty string."""
    try:
        await server.start()
    except (EbbtideError, OSError) as error:
        return str(error)
    return ""
