"""The whole platform on one machine: `python -m ebbtide_operator.up --state DIR [--port N]`.

A supervisor of broker, hot store, process runner, operator and gateway: it starts them in this
order, starts again whatever dies, and says in DIR/up.json where things are. SIGTERM ends all of
it; data stay. What jobs run as processes belongs to the runner, and ends with `down` too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ebbtide import lock, logs, tokens
from ebbtide.adapters.embedded import HOST, Daemon, EmbeddedServers
from ebbtide.endpoint import Up, read_up, write_up
from ebbtide.errors import EbbtideError, Permanent, Refused
from ebbtide.exits import EXIT_OK, EXIT_REFUSED
from ebbtide.logs import Log
from ebbtide_operator import leftovers
from ebbtide_operator.children import Child
from ebbtide_operator.core.pods import ROLES
from ebbtide_operator.core.site import Site
from ebbtide_operator.keeper import free_port

READY_SECONDS = 90.0
POLL_SECONDS = 0.1


class Stack:
    """Everything below one state folder."""

    def __init__(self, *, state: Path, port: int, log: Log) -> None:
        self._state, self._port, self._log = state, port, log
        self._servers = EmbeddedServers(folder=state / "servers")
        self._children: list[Child] = []
        self._up = Up(
            url=f"http://{HOST}:{port}",
            token_file=str(state / "token"),
            state_dir=str(state),
            pids={"up": os.getpid()},
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Start all, say when ready, keep all running until `stop`; then end all."""
        try:
            await self._start(stop)
        finally:
            self._say(stage="stopping", ready=False)
            await self._end()
            self._say(stage="stopped", ready=False)

    async def _start(self, stop: asyncio.Event) -> None:
        self._say(stage="starting broker and hot store")
        await self._servers.start()
        _write_secrets(self._state, self._servers)
        self._children = self._make_children()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child.run(), name=child.name) for child in self._children]
            tasks += [group.create_task(self._keep(d)) for d in self._daemons.values()]
            tasks.append(group.create_task(self._await_ready(), name="ready"))
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _await_ready(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            for child in self._children:
                self._say(stage=f"starting the {child.name}")
                try:
                    async with asyncio.timeout(READY_SECONDS):
                        await child.ready(http)
                except TimeoutError:
                    raise Permanent(f"the {child.name} was not ready in time") from None
        self._say(stage="ready", ready=True)

    async def _keep(self, daemon: Daemon) -> None:
        """Start a server again when it dies; what it held is made again by those who need it."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not daemon.alive():
                self._log.warning("server ended; starting it again")
                with suppress(Permanent):
                    await daemon.start()
                self._say()

    async def _end(self) -> None:
        for child in reversed(self._children):
            await child.end()
        await leftovers.end_pods(self._state, self._log)
        await self._servers.stop()

    @property
    def _daemons(self) -> Mapping[str, Daemon]:
        return {"nats": self._servers.nats, "valkey": self._servers.valkey}

    def _say(self, **fields: Any) -> None:
        children = {child.name: child.pid for child in self._children if child.pid}
        servers = {name: d.pid for name, d in self._daemons.items() if d.alive()}
        pids = {"up": os.getpid()} | children | servers
        self._up = msgspec.structs.replace(self._up, pids=pids, **fields)
        write_up(self._state, self._up)

    def _make_children(self) -> list[Child]:
        state = self._state
        common = {"EBBTIDE_CLUSTER": str(state / "cluster.sqlite")}
        runner = common | {
            "EBBTIDE_LOGS_DIR": str(state / "logs"),
            "EBBTIDE_SECRETS_DIR": str(state / "secrets"),
            "EBBTIDE_RUN_DIR": str(state / "run"),
            "EBBTIDE_FOLDER": str(Path.cwd()),
        }
        blobs = common | {"EBBTIDE_BLOBS_URL": _blobs_url(state)}
        site = msgspec.json.encode(_site(state, self._servers)).decode()
        gateway = blobs | {
            "EBBTIDE_PORT": str(self._port),
            "EBBTIDE_TOKENS_FILE": str(state / "tokens.txt"),
        }
        return [
            self._child("runner", "ebbtide_operator.local", runner),
            self._child(
                "operator",
                "ebbtide_operator",
                blobs | {"EBBTIDE_SITE": site, "EBBTIDE_LEASE_SECONDS": "6"},
            ),
            self._child("gateway", "services.gateway", gateway),
        ]

    def _child(self, name: str, module: str, env: Mapping[str, str]) -> Child:
        health = {"EBBTIDE_HEALTH_PORT": str(free_port()), "EBBTIDE_POD": name}
        return Child(name, module, dict(env) | health, log=self._log, started=self._say)


def _blobs_url(state: Path) -> str:
    return (state / "blobs").as_uri()


def _site(state: Path, servers: EmbeddedServers) -> Site:
    """How pods of this machine reach everything; passwords go by name of a secret."""
    return Site(
        env={
            "EBBTIDE_NATS_URL": servers.nats_url,
            "EBBTIDE_VALKEY_URL": servers.valkey_url,
            "EBBTIDE_BLOBS_URL": _blobs_url(state),
            "EBBTIDE_CLUSTER": str(state / "cluster.sqlite"),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        role_env={role: {"EBBTIDE_NATS_USER": role} for role in ROLES},
        secret_env={
            role: {"EBBTIDE_NATS_PASSWORD": f"nats-{role}", "EBBTIDE_VALKEY_PASSWORD": "valkey"}
            for role in ROLES
        },
        rendezvous=f"file://{state}/run/{{uid}}-{{attempt}}.rendezvous",
        audit=f"{state}/audit/{{pod}}.jsonl",
    )


def _write_secrets(state: Path, servers: EmbeddedServers) -> None:
    """One private file per secret, and the gateway's token, which is made once."""
    known = servers.credentials
    wanted = {f"nats-{role}": known.nats[role] for role in ROLES} | {"valkey": known.valkey}
    folder = state / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, secret in wanted.items():
        _write_private(folder / name, secret)
    if not (state / "token").exists():
        token = tokens.new_token()
        _write_private(state / "tokens.txt", tokens.line("local", token) + "\n")
        _write_private(state / "token", token + "\n")


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


async def _run(state: Path, port: int, log: Log) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await leftovers.end_children(state, log)
    await Stack(state=state, port=_check_port(port), log=log).run(stop)


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold the folder's lock; raises Refused if another process does."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock.hold(state))
        except BlockingIOError:
            running = read_up(state)
            where = f" at {running.url}" if running else ""
            hint = "use it, or end it with: ebbtide down"
            raise Refused(f"{state} is up already{where}; {hint}", field="--state") from None
        yield


def _check_port(port: int) -> int:
    """The port to use; raises Refused if it is taken."""
    if port == 0:
        return free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            hint = "choose another with --port, or 0 for any"
            raise Refused(f"port {port} on {HOST} is in use; {hint}", field="--port") from None
    return port


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="ebbtide up", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder for everything")
    parser.add_argument("--port", type=int, default=8470, help="of the gateway; 0: any free one")
    given = parser.parse_args(arguments)
    log = logs.setup("info", role="up")
    state = given.state.resolve()
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with _alone(state):
            asyncio.run(_run(state, given.port, log))
    except (EbbtideError, BaseExceptionGroup) as error:
        cause = _first(error)
        if not isinstance(cause, EbbtideError):
            raise
        print(f"ebbtide up: {cause}", file=sys.stderr)  # noqa: T201 - for people
        return EXIT_REFUSED
    return EXIT_OK


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
