"""The operator beside a kubelet, on virtual time: what its tests are played on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from ebbtide.errors import Conflict, NotFound
from ebbtide.objects import rfc3339, unix_time
from ebbtide.ports import Resource
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.spans import FakeSpans
from ebbtide_operator.controller import Controller
from ebbtide_operator.core.retention import Limits
from ebbtide_operator.core.site import Site
from ebbtide_operator.lease import Lease
from ebbtide_operator.metrics import OperatorMetrics
from ebbtide_operator.podspec import RUNNER_FINALIZER, PodView, view

JOB = ("RLHFJob", "default", "job")
QUIET = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(50))
Scene = Callable[["Platform"], Awaitable[None]]


class Dead(BaseException):
    """The operator's end, at a place of the test's choosing."""


class MortalCluster(FakeCluster):
    """Dies at the write number `dies_at`: before it, or after it where `late`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.dies_at = -1
        self.late = False
        self.writes = 0

    async def create(self, resource: Resource) -> Resource:
        return await self._mortal(super().create(resource))

    async def patch(self, *given: Any, **named: Any) -> Resource:
        return await self._mortal(super().patch(*given, **named))

    async def patch_status(self, *given: Any, **named: Any) -> Resource:
        return await self._mortal(super().patch_status(*given, **named))

    async def _mortal(self, write: Coroutine[Any, Any, Resource]) -> Resource:
        self.writes += 1
        if self.writes != self.dies_at:
            return await write
        if self.late:
            await write
        else:
            write.close()
        raise Dead


class Platform:
    """A cluster with a kubelet, and operators that come and go."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = MortalCluster(wall=self.clock.wall)
        self.kubelet = FakeCluster(wall=self.clock.wall)
        self.kubelet.table, self.kubelet._moved = self.cluster.table, self.cluster._moved
        self.blobs = FakeBlobs(wall=self.clock.wall)
        self.operators = 0
        self.spans = FakeSpans()
        self.lives: dict[str, list[float]] = {}
        """What the kubelet itself knows: Unix times of each pod's start, and of its end."""

    @asynccontextmanager
    async def operator(
        self, *, site: Site | None = None, limits: Limits | None = None
    ) -> AsyncIterator[Controller]:
        """An operator that lives as long as the context; it may die earlier."""
        self.operators += 1
        lease = Lease(
            cluster=self.kubelet,
            clock=self.clock,
            holder=f"operator-{self.operators}",
            seconds=6.0,
            namespace="default",
        )
        controller = Controller(
            cluster=self.cluster,
            blobs=self.blobs,
            clock=self.clock,
            lease=lease,
            site=site or Site(),
            namespace=None,
            metrics=OperatorMetrics(CollectorRegistry(), since=self.clock.wall()),
            log=QUIET,
            limits=limits or Limits(),
            spans=self.spans,
        )
        task = asyncio.create_task(self._run(controller, lease))
        try:
            yield controller
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Dead, BaseExceptionGroup):
                await task

    async def _run(self, controller: Controller, lease: Lease) -> None:
        await lease.acquire()
        async with asyncio.TaskGroup() as group:
            for work in (
                controller.cache.follow(),
                controller.work(),
                controller.resync(),
                lease.keep(),
            ):
                group.create_task(work)

    async def run_pods(self) -> None:
        """The kubelet, for ever: starts what is pending, ends what was deleted."""
        while True:
            for resource in (await self.kubelet.list("Pod"))[0]:
                with suppress(Conflict, NotFound):
                    await self._care(view(resource))
            await self.clock.sleep(0.2)

    async def _care(self, pod: PodView) -> None:
        key = ("Pod", "default", pod.name)
        finalizers = list(pod.resource.metadata.finalizers)
        now = rfc3339(self.clock.wall())
        if pod.leaving:
            if pod.status.phase == "Running":
                await self.end(pod.name, code=0)
            left = [one for one in finalizers if one != RUNNER_FINALIZER]
            await self.kubelet.patch(*key, {"metadata": {"finalizers": left}})
        elif pod.status.phase == "Pending":
            claim = {"metadata": {"finalizers": [*finalizers, RUNNER_FINALIZER]}}
            await self.kubelet.patch(*key, claim)
            status = {"phase": "Running", "ready": True, "startedAt": now}
            self.lives[pod.uid] = [unix_time(now)]
            await self.kubelet.patch_status(*key, status)

    async def end(self, name: str, *, code: int | None = None, signal: int | None = None) -> None:
        pod = await self.kubelet.get("Pod", "default", name)
        if "finishedAt" in pod.status:
            return
        self.lives[pod.metadata.uid].append(unix_time(rfc3339(self.clock.wall())))
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "ready": False,
            "finishedAt": rfc3339(self.clock.wall()),
            "exitCode": code,
            "signal": signal,
        }
        await self.kubelet.patch_status("Pod", "default", name, status)

    async def until(self, holds: Callable[[], bool], seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await self.clock.sleep(0.1)

    def status(self) -> Mapping[str, Any]:
        found = [r for r in self.cluster.table.objects.values() if r.kind == "RLHFJob"]
        return found[0].status if found else {}

    def holds(self, kind: str) -> bool:
        conditions = self.status().get("conditions", [])
        return any(c["type"] == kind and c["status"] == "True" for c in conditions)

    def pods(self) -> list[str]:
        objects = self.cluster.table.objects.values()
        return sorted(r.metadata.name for r in objects if r.kind == "Pod")

    def events(self) -> dict[str, int]:
        objects = self.cluster.table.objects.values()
        return {r.spec["reason"]: r.spec["count"] for r in objects if r.kind == "Event"}


def play(scene: Scene) -> None:
    """Run a scene on virtual time beside a kubelet."""

    async def whole() -> None:
        platform = Platform()
        kubelet = asyncio.create_task(platform.run_pods())
        try:
            await scene(platform)
        finally:
            kubelet.cancel()
            with suppress(asyncio.CancelledError):
                await kubelet

    run_virtual(whole())
