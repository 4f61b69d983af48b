"""One pod on this machine: what the process runner does about it, pass by pass.

Level-triggered: `step` looks at the pod object, at the process and at the clock, does the one
thing that is due, and says when to look again. It may be repeated at any time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ebbtide.adapters.cluster_sqlite import log_file, read_lines
from ebbtide.errors import Conflict, EbbtideError, NotFound, Refused
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Clock, Cluster
from ebbtide_operator.podspec import RUNNER_FINALIZER, PodStatus, PodView
from ebbtide_operator.processes import Cold, Exit, Nursery, Started, is_alive, send, watch_adopted

IDLE = 3600.0
READY_SOON = 0.2
READY_LATER = 2.0
PROBE_SECONDS = 2.0
UNRESPONSIVE_SECONDS = 60.0
"""A process that answers no probe for so long is killed."""
_TAIL = 20


@dataclass(frozen=True)
class Places:
    """Folders. `run`: pid files; `secrets`: a file per secret; `folder`: where pods start."""

    logs: Path
    run: Path
    secrets: Path
    folder: Path


@dataclass(frozen=True)
class Host:
    """What the pods of one machine share."""

    cluster: Cluster
    clock: Clock
    log: Log
    cold: Cold
    nursery: Nursery
    http: httpx.AsyncClient
    places: Places


class Keeper:
    """Keeps one pod: its process, its probes, its status."""

    def __init__(self, *, host: Host, pod: PodView) -> None:
        self.pod = pod
        self.changed = asyncio.Event()
        self._host = host
        self._process: Started | None = None
        self._exit: Exit | None = None
        self._gone = False
        self._answered = host.clock.now()
        self._told_to_end: float | None = None
        self._adopting: asyncio.Task[None] | None = None

    @property
    def _status(self) -> PodStatus:
        return self.pod.status

    def see(self, pod: PodView) -> None:
        """The object changed."""
        self.pod = pod
        self.changed.set()

    def see_gone(self) -> None:
        """The object is no more."""
        self._gone = True
        self.changed.set()

    async def step(self) -> float | None:
        """Do what is due; seconds until the next look, None if the pod is done for."""
        self._adopt()
        if self._exit is not None:
            await self._record_end(self._exit)
        gone = self.pod.leaving or self._gone
        if self.pod.finished or (gone and self._process is None):
            return await self._let_go()
        if gone:
            return self._end()
        if self._process is None:
            return await self._begin()
        return await self._probe()

    # --- begin ------------------------------------------------------------------------------------

    async def _begin(self) -> float:
        if RUNNER_FINALIZER not in self.pod.resource.metadata.finalizers:
            finalizers = [*self.pod.resource.metadata.finalizers, RUNNER_FINALIZER]
            try:
                await self._patch({"metadata": {"finalizers": finalizers}})
            except Refused:  # it is being deleted meanwhile; the change is on its way here
                return READY_SOON
        port = free_port()
        try:
            self._process = await self._start(port)
        except (EbbtideError, OSError) as error:
            await self._write(phase="Failed", reason="CannotStart", message=str(error))
            return 0.0
        self._answered = self._host.clock.now()
        await self._write(
            phase="Running",
            pid=self._process.pid,
            pidStart=self._process.start,
            healthPort=port,
            startedAt=rfc3339(self._host.clock.wall()),
        )
        return READY_SOON

    async def _start(self, port: int) -> Started:
        spec, meta = self.pod.spec, self.pod.resource.metadata
        log = log_file(self._host.places.logs, meta.namespace, meta.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        starter = self._host.nursery if spec.warm else self._host.cold
        process = await starter.start(
            spec.command,
            self._environment(port),
            log=log,
            folder=self._host.places.folder,
            ended=self._ended,
        )
        self._pid_file.write_bytes(msgspec.json.encode(process))
        return process

    def _environment(self, port: int) -> Mapping[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
        spec = self.pod.spec
        secrets = {
            k: _secret(self._host.places.secrets, name) for k, name in spec.secret_env.items()
        }
        return own | dict(spec.env) | secrets | {"EBBTIDE_HEALTH_PORT": str(port)}

    # --- watch ------------------------------------------------------------------------------------

    async def _probe(self) -> float:
        if not self.pod.spec.probe:
            await self._set_ready(ready=True)
            return READY_LATER
        alive, ready = await self._ask()
        now = self._host.clock.now()
        if alive:
            self._answered = now
        elif now - self._answered > UNRESPONSIVE_SECONDS and self._process:
            self._host.log.warning("pod answers no probe; killing it", pod=self.pod.name)
            send(self._process, signal.SIGKILL)
        await self._set_ready(ready=ready)
        return READY_LATER if ready else READY_SOON

    async def _ask(self) -> tuple[bool, bool]:
        url = f"http://127.0.0.1:{self._status.health_port}"
        try:
            answer = await self._host.http.get(f"{url}/readyz", timeout=PROBE_SECONDS)
        except httpx.HTTPError:
            return False, False
        return True, answer.is_success

    async def _set_ready(self, *, ready: bool) -> None:
        if ready != self._status.ready:
            await self._write(ready=ready)

    def _adopt(self) -> None:
        """Find again the process that an earlier runner started."""
        if self._process is not None or self._exit is not None or self.pod.finished:
            return
        known = self._known()
        if known is None:
            return
        self._process = known
        if is_alive(known):
            watch = watch_adopted(known, self._ended)
            self._adopting = asyncio.create_task(watch, name=f"adopted-{known.pid}")
        else:
            self._ended(Exit())

    def _known(self) -> Started | None:
        if self._status.pid:
            return Started(self._status.pid, self._status.pid_start)
        try:
            return msgspec.json.decode(self._pid_file.read_bytes(), type=Started)
        except FileNotFoundError:
            return None

    # --- end --------------------------------------------------------------------------------------

    def _ended(self, how: Exit) -> None:
        self._exit = how
        self.changed.set()

    def _end(self) -> float:
        """SIGTERM once; SIGKILL when the grace period is over."""
        assert self._process is not None
        now = self._host.clock.now()
        if self._told_to_end is None:
            self._told_to_end = now
            send(self._process, signal.SIGTERM)
        left = self._told_to_end + self.pod.grace - now
        if left <= 0:
            send(self._process, signal.SIGKILL)
            return 1.0
        return min(left, 1.0)

    async def _record_end(self, how: Exit) -> None:
        meta = self.pod.resource.metadata
        lines = read_lines(log_file(self._host.places.logs, meta.namespace, meta.name), _TAIL)
        await self._write(
            phase="Succeeded" if how.code == 0 else "Failed",
            ready=False,
            reason=_reason(how),
            message=b"\n".join(lines).decode(errors="replace")[-4000:],
            finishedAt=rfc3339(self._host.clock.wall()),
            exitCode=how.code,
            signal=how.signal,
        )
        self._exit = None
        self._process = None
        self._pid_file.unlink(missing_ok=True)

    async def _let_go(self) -> float | None:
        meta = self.pod.resource.metadata
        if self._gone:
            return None
        if not self.pod.leaving:
            return IDLE
        if RUNNER_FINALIZER in meta.finalizers:
            await self._drop_finalizer()
        return None

    async def _drop_finalizer(self) -> None:
        """Others drop theirs meanwhile: a list that is out of date would add them again."""
        meta, cluster = self.pod.resource.metadata, self._host.cluster
        while True:
            try:
                found = (await cluster.get("Pod", meta.namespace, meta.name)).metadata
                rest = [name for name in found.finalizers if name != RUNNER_FINALIZER]
                if found.uid == meta.uid:
                    patch = {"metadata": {"finalizers": rest}}
                    version = found.resource_version
                    await cluster.patch("Pod", meta.namespace, meta.name, patch, version)
            except Conflict:
                continue
            except NotFound:
                return
            return

    # --- writing ----------------------------------------------------------------------------------

    @property
    def _pid_file(self) -> Path:
        return self._host.places.run / f"{self.pod.uid}.pid"

    async def _write(self, **status: Any) -> None:
        merged = {**msgspec.to_builtins(self._status), **status}
        self.pod = msgspec.structs.replace(self.pod, status=msgspec.convert(merged, PodStatus))
        meta = self.pod.resource.metadata
        try:
            await self._host.cluster.patch_status("Pod", meta.namespace, meta.name, status)
        except NotFound:
            self._host.log.info("pod object is gone", pod=meta.name)

    async def _patch(self, patch: Mapping[str, Any]) -> None:
        meta = self.pod.resource.metadata
        try:
            changed = await self._host.cluster.patch("Pod", meta.namespace, meta.name, patch)
        except NotFound:
            return
        self.pod = msgspec.structs.replace(self.pod, resource=changed)


def _reason(how: Exit) -> str:
    if how.signal is not None:
        return "Killed"
    if how.code is None:
        return "Unknown"
    return "Completed" if how.code == 0 else "Error"


def _secret(folder: Path, name: str) -> str:
    path = folder / name
    if not path.is_file():
        raise NotFound(f"the secret {name} does not exist on this machine")
    return path.read_text().strip()


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
