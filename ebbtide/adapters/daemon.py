"""One server process of this machine: started, found again, started again where others know it.

Port and process id are kept in a file, so that a later process finds a server that still runs and
adopts it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ebbtide.errors import Permanent, Refused, Temporary

HOST = "127.0.0.1"
_POLL_SECONDS = 0.02
_FREE_PORT_TRIES = 3


class _State(msgspec.Struct, frozen=True):
    pid: int
    port: int


Probe = Callable[[int], Awaitable[bool]]


class Daemon:
    """One server process: `configure(port)` gives its command line, `probe(port)` its readiness.

    `port` 0 takes the port of the last run if it is free, else any. Once the server has answered
    its port is known to others, and it comes back there or not at all.
    """

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        port: int,
        configure: Callable[[int], list[str]],
        probe: Probe,
    ) -> None:
        self._name = name
        self._folder = folder
        self._wanted = port
        self._configure = configure
        self._probe = probe
        self._child: subprocess.Popen[bytes] | None = None
        self._state: _State | None = None
        self._kept = 0
        self.moved = False
        """Whether it has another port than its last run had, which somebody may still know."""

    @property
    def pid(self) -> int:
        """Process id; only while started."""
        assert self._state is not None, f"{self._name} is not started"
        return self._state.pid

    @property
    def port(self) -> int:
        """TCP port on the loopback address; only while started."""
        assert self._state is not None, f"{self._name} is not started"
        return self._state.port

    async def start(self, deadline: float = 15.0) -> None:
        """Start, or adopt the one that runs; returns when it answers.

        Raises Refused if the port asked for is taken, Temporary if the one it had is, Permanent if
        the server ends or stays dumb, OSError if there is no process or no file to be had.
        """
        last = self._saved()
        if last is not None and self._runs(last) and self._fixed in (0, last.port):
            self._state = last
            await self._await_ready(deadline)
        else:
            await self._start_anew(last, deadline)
        self._kept = self.port
        self.moved = last is not None and last.port != self.port

    async def stop(self, grace: float = 10.0) -> None:
        """End the server; after `grace` seconds by force."""
        if self._state is None:
            return
        await self._end(signal.SIGTERM, grace)
        if self.alive():
            await self._end(signal.SIGKILL, grace)
        self._forget()

    async def kill(self) -> None:
        """End the server at once, as a crash does."""
        await self._end(signal.SIGKILL, 10.0)
        self._forget()

    def alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self._state is not None and self._runs(self._state)

    @property
    def _fixed(self) -> int:
        """The one port that will do, or 0."""
        return self._wanted or self._kept

    async def _start_anew(self, last: _State | None, deadline: float) -> None:
        for tries_left in reversed(range(1 if self._fixed else _FREE_PORT_TRIES)):
            self._spawn(self._pick_port(last))
            try:
                await self._await_ready(deadline)
            except Permanent:
                await self.stop()
                if not tries_left:
                    raise
            else:
                return

    def _spawn(self, port: int) -> None:
        command = self._configure(port)
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._state = _State(pid=self._child.pid, port=port)
        try:
            write_private(self._file, msgspec.json.encode(self._state))
        except OSError:
            self._child.kill()  # nobody could find it again
            raise

    async def _await_ready(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.alive():
                    if await self._probe(self.port):
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        words = "does not answer" if self.alive() else "ended at once"
        raise Permanent(f"{self._name} on port {self.port} {words}: {self._last_words()}")

    async def _end(self, number: signal.Signals, grace: float) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.alive():  # noqa: ASYNC110 - a process sets no event
                    await asyncio.sleep(_POLL_SECONDS)

    def _forget(self) -> None:
        self._child = None
        self._state = None

    def _pick_port(self, last: _State | None) -> int:
        if self._fixed:
            if not is_free(self._fixed):
                raise self._taken()
            return self._fixed
        return last.port if last is not None and is_free(last.port) else free_port()

    def _taken(self) -> Refused | Temporary:
        detail = f"port {self._fixed} on {HOST} is in use"
        if self._wanted:
            way_out = f"stop what holds it, or choose another port for {self._name}"
            return Refused(f"{detail}; {way_out}", field=self._name)
        return Temporary(f"{detail}; {self._name} waits for it, as jobs know it there")

    def _saved(self) -> _State | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_State)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _runs(self, state: _State) -> bool:
        """Whether the process of an earlier run lives and is ours: it names our folder."""
        try:
            shown = Path(f"/proc/{state.pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return False
        return self._name in shown and str(self._folder) in shown

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._name}.json"

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._name}.log"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


def write_private(file: Path, data: bytes) -> None:
    """Have `file` hold `data`, for its owner alone; neither reader nor crash finds half of it.

    A file that holds it already is left alone, so that a full disk is in nobody's way.
    """
    with suppress(FileNotFoundError):
        if file.read_bytes() == data:
            return
    draft = file.with_name(f"{file.name}.new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(handle)
    draft.replace(file)


def is_free(port: int) -> bool:
    """Whether nobody listens on this TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
