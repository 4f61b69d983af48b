"""One pod on this machine: what the process runner does about it, pass by pass.

Level-triggered: `step` looks at the pod object, at the process and at the clock, does the one
thing that is due, and says when to look again. It may be repeated at any time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from ebbtide.adapters.cluster_sqlite import log_file, read_lines
from ebbtide.adapters.daemon import free_port
from ebbtide.errors import Conflict, EbbtideError, NotFound, Refused
from ebbtide.interpreters import interpreter, sources
from ebbtide.logs import Log
from ebbtide.objects import rfc3339, unix_time
from ebbtide.ports import Clock, Cluster, Resource
from ebbtide_operator.nursery import Nursery
from ebbtide_operator.podspec import RUNNER_FINALIZER, PodStatus, PodView, view
from ebbtide_operator.processes import (
    Cold,
    Exit,
    Held,
    Program,
    Started,
    is_alive,
    send,
    watch_adopted,
)

IDLE = 3600.0
READY_SOON = 0.2
READY_LATER = 2.0
PROBE_SECONDS = 2.0
UNRESPONSIVE_SECONDS = 60.0
"""A process that answers no probe for so long is killed."""
_TAIL = 20


@dataclass(frozen=True)
class Places:
    """Folders. `secrets`: a file per secret; `folder`: where pods start."""

    logs: Path
    secrets: Path
    folder: Path


@dataclass(frozen=True)
class Host:
    """What the pods of one machine share.

    `seen_at`: Unix time at which the last runner of this machine was seen alive; a pod found dead
    had not ended before that, as far as anybody knows.
    """

    cluster: Cluster
    clock: Clock
    log: Log
    cold: Cold
    nursery: Nursery
    http: httpx.AsyncClient
    places: Places
    seen_at: float | None = None


class Keeper:
    """Keeps one pod: its process, its probes, its status."""

    def __init__(self, *, host: Host, pod: PodView) -> None:
        self.pod = pod
        self.changed = asyncio.Event()
        self._host = host
        self._process: Started | None = None
        self._exit: Exit | None = None
        self._ended_at = 0.0
        self._run = 0
        self._gone = False
        self._answered = host.clock.now()
        self._unresponsive = False
        self._told_to_end: float | None = None
        self._adopting: asyncio.Task[None] | None = None

    @property
    def _status(self) -> PodStatus:
        return self.pod.status

    def see(self, pod: PodView) -> None:
        """The object changed; what is older than our own last write is no news."""
        if _version(pod) > _version(self.pod):
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
        if self.pod.spec.warm and not self._host.nursery.warm:
            return READY_SOON
        if not await self._claim():
            return READY_SOON  # it is being deleted: the change is on its way here
        port = free_port()
        try:
            held = await self._start(port)
        except (EbbtideError, OSError) as error:
            await self._refuse(str(error))
            return 0.0
        recorded = False
        try:
            recorded = await self._record_start(held.process, port)
        finally:
            if not recorded:
                self._run += 1  # its end is of no interest
                held.drop()
        if recorded:
            self._process = held.process
            self._answered = self._host.clock.now()
            held.go()
        return READY_SOON

    async def _claim(self) -> bool:
        """Hold the object as long as there may be a process; False if it is going already."""
        if RUNNER_FINALIZER in self.pod.resource.metadata.finalizers:
            return True
        finalizers = [*self.pod.resource.metadata.finalizers, RUNNER_FINALIZER]
        try:
            return await self._patch({"metadata": {"finalizers": finalizers}})
        except Refused:
            return False

    async def _start(self, port: int) -> Held:
        spec, meta = self.pod.spec, self.pod.resource.metadata
        log = log_file(self._host.places.logs, meta.namespace, meta.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        program = Program(
            command=spec.command,
            env=self._environment(port),
            log=log,
            folder=self._host.places.folder,
            title=meta.name,
            python=interpreter(spec.interpreter, os.environ),
        )
        starter = self._host.nursery if spec.warm else self._host.cold
        return await starter.start(program, ended=partial(self._ended_run, self._run))

    async def _record_start(self, process: Started, port: int) -> bool:
        return await self._write(
            phase="Running",
            pid=process.pid,
            pidStart=process.start,
            healthPort=port,
            startedAt=rfc3339(self._host.clock.wall()),
        )

    async def _refuse(self, why: str) -> None:
        now = rfc3339(self._host.clock.wall())
        await self._write(phase="Failed", reason="CannotStart", message=why, finishedAt=now)

    def _environment(self, port: int) -> Mapping[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
        spec = self.pod.spec
        secrets = {
            k: _secret(self._host.places.secrets, name) for k, name in spec.secret_env.items()
        }
        elsewhere = {"PYTHONPATH": sources()} if spec.interpreter and sources() else {}
        return own | elsewhere | dict(spec.env) | secrets | {"EBBTIDE_HEALTH_PORT": str(port)}

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
            self._unresponsive = True
            send(self._process, signal.SIGKILL)
        await self._set_ready(ready=ready)
        return READY_LATER if ready else READY_SOON

    async def _ask(self) -> tuple[bool, bool]:
        """Whether it is alive, and whether it is ready."""
        for path in ("readyz", "healthz"):
            url = f"http://127.0.0.1:{self._status.health_port}/{path}"
            try:
                answer = await self._host.http.get(url, timeout=PROBE_SECONDS)
            except httpx.HTTPError:
                return False, False
            if answer.is_success:
                return True, path == "readyz"
        return False, False

    async def _set_ready(self, *, ready: bool) -> None:
        if ready != self._status.ready:
            await self._write(ready=ready)

    def _adopt(self) -> None:
        """Find again the process that an earlier runner started."""
        if self._process is not None or self._exit is not None or self.pod.finished:
            return
        if not self._status.pid:
            return
        self._process = Started(self._status.pid, self._status.pid_start)
        if is_alive(self._process):
            watch = watch_adopted(self._process, self._ended)
            self._adopting = asyncio.create_task(watch, name=f"adopted-{self._process.pid}")
        else:
            self._ended(Exit())
            self._ended_at = min(self._ended_at, self._last_seen())

    def _last_seen(self) -> float:
        started = unix_time(self._status.started_at) if self._status.started_at else 0.0
        return max(started, self._host.seen_at or self._ended_at)

    # --- end --------------------------------------------------------------------------------------

    def _ended_run(self, run: int, how: Exit) -> None:
        if run == self._run:
            self._ended(how)

    def _ended(self, how: Exit) -> None:
        self._exit = how
        self._ended_at = self._host.clock.wall()
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
            reason="Unresponsive" if self._unresponsive else _reason(how),
            message=b"\n".join(lines).decode(errors="replace")[-4000:],
            finishedAt=rfc3339(self._ended_at),
            exitCode=how.code,
            signal=how.signal,
        )
        self._exit = None
        self._process = None

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

    async def _write(self, **status: Any) -> bool:
        """Write into the status; False if the object is gone."""
        meta = self.pod.resource.metadata
        return await self._learn(
            self._host.cluster.patch_status("Pod", meta.namespace, meta.name, status)
        )

    async def _patch(self, patch: Mapping[str, Any]) -> bool:
        """Write into the rest of the object; False if it is gone."""
        meta = self.pod.resource.metadata
        return await self._learn(self._host.cluster.patch("Pod", meta.namespace, meta.name, patch))

    async def _learn(self, write: Awaitable[Resource]) -> bool:
        try:
            self.see(view(await write))
        except NotFound:
            self._host.log.info("pod object is gone", pod=self.pod.name)
            self.see_gone()
        return not self._gone


def _version(pod: PodView) -> int:
    return int(pod.resource.metadata.resource_version)


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
