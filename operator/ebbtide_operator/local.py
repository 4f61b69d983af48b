"""The process runner: plays the kubelet on one machine.

`python -m ebbtide_operator.local` watches Pod objects, starts their commands as processes, forks
the heavy ones from a warmed parent, probes, signals and reaps them, and writes their status. It
decides nothing about jobs. Its own end touches no process; the next runner adopts them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import msgspec
from pydantic import Field

from ebbtide import logs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.adapters.cluster_sqlite.pod_logs import remove_stale, rotate
from ebbtide.errors import Conflict, Refused, Temporary
from ebbtide.exits import EXIT_REFUSED
from ebbtide.metrics import new_registry
from ebbtide.ports import Resource
from ebbtide.runtime import Process, run
from ebbtide.settings import ProcessSettings
from ebbtide_operator.core.old_logs import needed
from ebbtide_operator.keeper import Host, Keeper, Places
from ebbtide_operator.nursery import Nursery
from ebbtide_operator.podspec import view
from ebbtide_operator.processes import Cold

WARM_MODULES = (
    "torch",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "safetensors.torch",
    "obstore",
    "nats",
    "redis.asyncio",
    "ebbtide.engines.torch.engine",
    "services.decode.app.body",
    "services.learner.app.shell",
)
ROTATE_SECONDS = 5.0
REMOVE_SECONDS = 3600.0
ALIVE_SECONDS = 2.0
AGAIN_SECONDS = 0.1
_DAY = 86_400.0


class RunnerSettings(ProcessSettings):
    """Settings of the process runner."""

    cluster: str
    """SQLite file of the object store."""
    logs_dir: str
    """Folder of the pods' logs."""
    secrets_dir: str
    """Folder with one file per secret."""
    run_dir: str
    """Folder for what the next runner must know: when this one was last alive."""
    folder: str = "."
    """Working directory of pods."""
    warm_modules: str = ",".join(WARM_MODULES)
    """What the warmed parent imports, separated by commas."""
    log_bytes: int = Field(default=64 * 1024 * 1024, ge=4096)
    """A pod's log is rotated beyond this many bytes."""
    log_days: float = Field(default=30.0, ge=0, le=36_500)
    """A log file goes so many days after its last line, once its job is over; 0: never."""


class Runner:
    """All pods of this machine, one keeper and one task each."""

    def __init__(self, *, host: Host, log_bytes: int, log_days: float) -> None:
        self._host = host
        self._log_bytes = log_bytes
        self._log_days = log_days
        self._keepers: dict[str, Keeper] = {}

    async def watch(self) -> None:
        """Follow the Pod objects for ever; a keeper that fails ends it."""
        async with asyncio.TaskGroup() as group:
            await self._watch(group)

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                await self._follow(group)
            except Conflict:
                self._host.log.info("watch history was pruned; listing again")
            except Temporary as error:
                self._host.log.warning("pods are not heard of; listing again", why=str(error))
                await self._host.clock.sleep(error.delay)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """List, then take in changes for as long as they can be heard."""
        pods, version = await self._host.cluster.list("Pod")
        for pod in pods:
            self._see(pod, group)
        for uid in set(self._keepers) - {pod.metadata.uid for pod in pods}:
            self._see_gone(uid)
        async for change in self._host.cluster.watch(["Pod"], None, version):
            if change.type == "DELETED":
                self._see_gone(change.resource.metadata.uid)
            elif change.type != "BOOKMARK":
                self._see(change.resource, group)

    async def rotate_logs(self) -> None:
        """Keep each log within its size."""
        while True:
            for path in self._host.places.logs.glob("*/*.log"):
                await self._rotate(path)
            await asyncio.sleep(ROTATE_SECONDS)

    async def _rotate(self, path: Path) -> None:
        """A log that stays too long is no reason to leave the pods alone."""
        try:
            await asyncio.to_thread(rotate, path, self._log_bytes)
        except OSError as error:
            self._host.log.warning("log not rotated yet", log=str(path), why=str(error))

    async def remove_logs(self) -> None:
        """Remove files of pods long gone, now and then; what was kept of them is elsewhere."""
        while self._log_days:
            await asyncio.sleep(REMOVE_SECONDS)
            try:
                await self._remove_logs()
            except (Temporary, OSError) as error:
                self._host.log.warning("old logs are not removed yet", why=str(error))

    async def _remove_logs(self) -> None:
        jobs, _ = await self._host.cluster.list("RLHFJob")
        pods, _ = await self._host.cluster.list("Pod")
        root = self._host.places.logs
        before = self._host.clock.wall() - self._log_days * _DAY
        gone = await asyncio.to_thread(remove_stale, root, before, needed(jobs, pods))
        if gone.files:
            self._host.log.info("old logs removed", files=gone.files, bytes=gone.bytes)

    def _see_gone(self, uid: str) -> None:
        if keeper := self._keepers.get(uid):
            keeper.see_gone()

    def _see(self, resource: Resource, group: asyncio.TaskGroup) -> None:
        try:
            pod = view(resource)
        except msgspec.ValidationError as error:
            self._host.log.warning("not a pod of ours", pod=resource.metadata.name, why=str(error))
            return
        keeper = self._keepers.get(pod.uid)
        if keeper is not None:
            keeper.see(pod)
        else:
            keeper = self._keepers[pod.uid] = Keeper(host=self._host, pod=pod)
            group.create_task(self._drive(keeper), name=f"pod-{pod.name}")

    async def _drive(self, keeper: Keeper) -> None:
        wait: float | None = 0.0
        while wait is not None:
            keeper.changed.clear()
            try:
                wait = await keeper.step()
            except Conflict:
                wait = AGAIN_SECONDS
            except Temporary as error:
                self._host.log.warning("object store does not answer", why=str(error))
                wait = AGAIN_SECONDS
            if wait is not None:
                await _pause(keeper.changed, wait)
        del self._keepers[keeper.pod.uid]


class LifeSign:
    """Says to the next runner until when this one lived; it lives on where that cannot be said."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.earlier = file.stat().st_mtime if file.exists() else None
        """Unix time of the last sign of an earlier runner."""

    async def keep(self) -> None:
        """Give a sign now and then, for ever."""
        while True:
            with suppress(OSError):
                self._file.touch()
            await asyncio.sleep(ALIVE_SECONDS)


async def _pause(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return


async def serve(settings: RunnerSettings, process: Process, places: Places, sign: LifeSign) -> None:
    """Run until SIGTERM; pods run on."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        cluster = await stack.enter_async_context(
            open_cluster(Path(settings.cluster), clock=clock, logs=places.logs)
        )
        nursery = Nursery(modules=settings.warm_modules.split(","), log=process.log)
        host = Host(
            cluster=cluster,
            clock=clock,
            log=process.log,
            cold=Cold(),
            nursery=nursery,
            http=await stack.enter_async_context(httpx.AsyncClient(trust_env=False)),
            places=places,
            seen_at=sign.earlier,
        )
        runner = Runner(host=host, log_bytes=settings.log_bytes, log_days=settings.log_days)
        tasks = [
            process.spawn(nursery.run(), name="nursery"),
            process.spawn(runner.watch(), name="pods"),
            process.spawn(runner.rotate_logs(), name="logs"),
            process.spawn(runner.remove_logs(), name="old logs"),
            process.spawn(sign.keep(), name="alive"),
        ]
        process.health.ready = True
        await process.drain.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _places(settings: RunnerSettings) -> Places:
    places = Places(
        logs=Path(settings.logs_dir).resolve(),
        secrets=Path(settings.secrets_dir).resolve(),
        folder=Path(settings.folder).resolve(),
    )
    for folder in (places.logs, Path(settings.run_dir).resolve()):
        folder.mkdir(parents=True, exist_ok=True)
    return places


def main() -> int:
    """Read the settings and run; returns the exit code."""
    try:
        settings = RunnerSettings.load(os.environ)
    except Refused as error:
        print(f"ebbtide runner: {error}", file=sys.stderr)  # noqa: T201 - there is no log yet
        return EXIT_REFUSED
    log = logs.setup(settings.log_level, role="runner")
    places = _places(settings)
    sign = LifeSign(Path(settings.run_dir) / "runner.alive")
    return run(
        lambda process: serve(settings, process, places, sign),
        settings=settings,
        registry=new_registry(counts=settings.metrics),
        log=log,
    )


if __name__ == "__main__":
    sys.exit(main())
