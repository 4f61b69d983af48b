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
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ebbtide import lock, logs, tokens
from ebbtide.adapters.daemon import HOST, Daemon, free_port, write_private
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.endpoint import UP_LOG, Up, make_state_dir, read_up
from ebbtide.errors import EbbtideError, Permanent, Refused
from ebbtide.exits import EXIT_OK, EXIT_REFUSED
from ebbtide.logs import Log
from ebbtide_operator import children, leftovers
from ebbtide_operator.children import GATEWAY, OPERATOR, RUNNER, Child, Said
from ebbtide_operator.core.pods import ROLES
from ebbtide_operator.core.site import Site
from ebbtide_operator.display import Display

READY_SECONDS = 90.0
LOOK_SECONDS = 1.0
KEYS = "EBBTIDE_REWARD_KEYS"
"""The keys of servers that score: a secret, so no plain variable of a pod."""


class Stack:
    """Everything below one state folder."""

    def __init__(
        self, *, state: Path, port: int, log: Log, servers: EmbeddedServers, display: Display
    ) -> None:
        self._state, self._port, self._log = state, port, log
        self._servers, self._display = servers, display
        self._children: list[Child] = []
        self._missing: dict[str, str] = {}
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
            try:
                await self._end()
            finally:
                self._say(stage="stopped", ready=False)

    async def _start(self, stop: asyncio.Event) -> None:
        self._say(stage="starting broker and hot store")
        await self._servers.start()
        if self._servers.moved:
            self._log.warning("servers have other ports now; ending pods that know the old ones")
            await leftovers.end_pods(self._state, self._log)
        _write_secrets(self._state, self._servers)
        self._children = self._make_children()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child.run(), name=child.name) for child in self._children]
            tasks += [group.create_task(self._keep(*named)) for named in self._daemons.items()]
            tasks.append(group.create_task(self._await_ready(), name="ready"))
            tasks.append(group.create_task(self._look(), name="look"))
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
                    why = child.trouble or "it runs, but does not say so"
                    raise Permanent(f"the {child.name} was not ready in time: {why}") from None
        self._say(stage="ready", ready=True)

    async def _keep(self, name: str, daemon: Daemon) -> None:
        def told(trouble: str) -> None:
            self._missing[name] = trouble
            self._say()

        await children.keep(daemon, name=name, log=self._log, told=told)

    async def _look(self) -> None:
        """See who has recovered, and write what could not be written, for ever."""
        async with httpx.AsyncClient(trust_env=False) as http:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                for child in self._children:
                    if child.trouble:
                        await child.answers(http)
                self._say()

    async def _end(self) -> None:
        async with AsyncExitStack() as rest:  # last first, each whatever befalls the one before
            rest.push_async_callback(self._servers.stop)
            rest.push_async_callback(leftovers.end_pods, self._state, self._log)
            for child in self._children:
                rest.push_async_callback(child.end)

    @property
    def _daemons(self) -> Mapping[str, Daemon]:
        return {"nats": self._servers.nats, "valkey": self._servers.valkey}

    def _say(self, **fields: Any) -> None:
        running = {child.name: child.pid for child in self._children if child.pid}
        servers = {name: d.pid for name, d in self._daemons.items() if d.alive()}
        pids = {"up": os.getpid()} | running | servers
        troubles = {child.name: child.trouble for child in self._children} | self._missing
        named = {name: trouble for name, trouble in troubles.items() if trouble}
        self._up = msgspec.structs.replace(self._up, pids=pids, troubles=named, **fields)
        self._display.show(self._up)

    def _make_children(self) -> list[Child]:
        state = self._state
        common = {"EBBTIDE_CLUSTER": str(leftovers.store_file(state))} | _seen()
        runner = common | {
            "EBBTIDE_LOGS_DIR": str(state / "logs"),
            "EBBTIDE_SECRETS_DIR": str(state / "secrets"),
            "EBBTIDE_RUN_DIR": str(state / "run"),
            "EBBTIDE_FOLDER": str(Path.cwd()),
            **_handed_on("EBBTIDE_LOG_DAYS"),
        }
        blobs = common | {"EBBTIDE_BLOBS_URL": _blobs_url(state)}
        site = msgspec.json.encode(_site(state, self._servers)).decode()
        gateway = (
            blobs
            | {
                "EBBTIDE_PORT": str(self._port),
                "EBBTIDE_TOKENS_FILE": str(state / "tokens.txt"),
            }
            | _handed_on("EBBTIDE_OPENCOST_URL")
        )
        return [
            self._child("runner", RUNNER, runner),
            self._child(
                "operator",
                OPERATOR,
                blobs | {"EBBTIDE_SITE": site, "EBBTIDE_LEASE_SECONDS": "6"} | _retention(),
            ),
            self._child("gateway", GATEWAY, gateway),
        ]

    def _child(self, name: str, module: str, env: Mapping[str, str]) -> Child:
        said = Said(self._state / UP_LOG)
        return Child(name, module, env, log=self._log, said=said, changed=self._say)


def _handed_on(name: str) -> dict[str, str]:
    """A variable of our own environment that children are to have too, where it is set."""
    return {name: value} if (value := os.environ.get(name)) else {}


def _retention() -> dict[str, str]:
    """What the operator lets go of; the log files are the runner's."""
    names = ("LOG_DAYS", "LOG_JOB_MIB", "SAMPLE_DAYS", "SAMPLE_JOB_MIB", "RETENTION_GRACE_HOURS")
    return {k: v for name in names for k, v in _handed_on(f"EBBTIDE_{name}").items()}


def _seen() -> dict[str, str]:
    """How processes are seen: whether they count, and where their spans go."""
    return _handed_on("EBBTIDE_METRICS") | _handed_on("EBBTIDE_OTLP_URL")


def _blobs_url(state: Path) -> str:
    """EBBTIDE_BLOBS_URL where that is set, with its keys in the store's own variables; else a folder."""
    return os.environ.get("EBBTIDE_BLOBS_URL") or (state / "blobs").as_uri()


def _site(state: Path, servers: EmbeddedServers) -> Site:
    """How pods of this machine reach everything; passwords go by name of a secret."""
    return Site(
        env={
            "EBBTIDE_NATS_URL": servers.nats_url,
            "EBBTIDE_VALKEY_URL": servers.valkey_url,
            "EBBTIDE_BLOBS_URL": _blobs_url(state),
            "EBBTIDE_CLUSTER": str(leftovers.store_file(state)),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **_seen(),
            **_handed_on("EBBTIDE_LOG_MIB"),
        },
        role_env={role: {"EBBTIDE_NATS_USER": role} | _given(role, os.environ) for role in ROLES},
        secret_env={
            role: {"EBBTIDE_NATS_PASSWORD": f"nats-{role}", "EBBTIDE_VALKEY_PASSWORD": "valkey"}
            | ({"EBBTIDE_KEYS": "reward-keys"} if role == "reward" else {})
            for role in ROLES
        },
        rendezvous=f"file://{state}/run/{{uid}}-{{attempt}}.rendezvous",
        audit=f"{state}/audit/{{pod}}.jsonl",
    )


def _given(role: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The administrator's settings of a role: EBBTIDE_REWARD_SANDBOX is EBBTIDE_SANDBOX there."""
    own = f"EBBTIDE_{role.upper()}_"
    given = {k: v for k, v in environ.items() if k.startswith(own) and k != KEYS}
    return {f"EBBTIDE_{k.removeprefix(own)}": v for k, v in given.items()}


def _write_secrets(state: Path, servers: EmbeddedServers) -> None:
    """One private file per secret, and the gateway's token."""
    known = servers.credentials
    wanted = {f"nats-{role}": known.nats[role] for role in ROLES} | {"valkey": known.valkey}
    wanted["reward-keys"] = os.environ.get(KEYS, "{}")
    folder = state / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, secret in wanted.items():
        write_private(folder / name, secret.encode())
    admit(state)


def admit(state: Path) -> None:
    """Have a token and the gateway's list that admits it; what is missing is made anew.

    A token that is gone is admitted no longer. Other lines of the list stay.
    """
    listed = _text(state / "tokens.txt").splitlines()
    token = _text(state / "token").strip()
    if not token:
        token = tokens.new_token()
        listed = [line for line in listed if not line.startswith("local:")]
        write_private(state / "token", f"{token}\n".encode())
    if (ours := tokens.line("local", token)) not in listed:
        write_private(state / "tokens.txt", "\n".join([*listed, ours, ""]).encode())


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.exists() else ""


async def _run(state: Path, port: int, log: Log) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await leftovers.end_children(state, log)
    await leftovers.check_store(state)
    stack = Stack(
        state=state,
        port=_check_port(port),
        log=log,
        servers=EmbeddedServers(folder=state / "servers"),
        display=Display(state, log=log),
    )
    await stack.run(stop)


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
        except OSError as error:  # a folder of a file system that is mounted for reading alone
            why = f"cannot be locked: {error.strerror}; choose another with --state-dir"
            raise Refused(f"{state} {why}", field="--state") from None
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
    try:
        make_state_dir(state)
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
