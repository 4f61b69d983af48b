"""What the operator knows of the cluster, whatever the watch tells."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog

from ebbtide.errors import Conflict, NotFound, Temporary
from ebbtide.objects import rfc3339
from ebbtide.ports import Change, Resource
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.jobs import a_job
from ebbtide_operator.cache import Cache
from ebbtide_operator.controller import Controller
from ebbtide_operator.core.site import Site
from ebbtide_operator.lease import Lease, Lost
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
        self.blobs = FakeBlobs()
        self.operators = 0

    @asynccontextmanager
    async def operator(self, *, site: Site | None = None) -> AsyncIterator[Controller]:
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
            log=QUIET,
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
            await self.kubelet.patch_status(*key, status)

    async def end(self, name: str, *, code: int | None = None, signal: int | None = None) -> None:
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


# --- the cache ------------------------------------------------------------------------------------


def a_cache(cluster: FakeCluster, told: list[tuple[str, str]]) -> Cache:
    return Cache(cluster=cluster, namespace=None, log=QUIET, changed=told.append)


@pytest.mark.parametrize("seen", [True, False])
async def test_news_older_than_a_deletion_does_not_raise_the_dead(seen: bool) -> None:
    cluster = FakeCluster()
    cache = a_cache(cluster, [])
    follow = asyncio.create_task(cache.follow())
    if seen:
        await asyncio.sleep(0.01)
    made = await cluster.create(a_job())
    await cluster.delete(*JOB)
    await asyncio.sleep(0.01)
    cache.learn(made)
    assert cache.jobs() == []
    follow.cancel()


async def test_the_write_that_removes_the_last_finalizer_removes_the_object() -> None:
    cluster = FakeCluster()
    cache = a_cache(cluster, [])
    await cluster.create(a_job())
    cache.learn(await cluster.patch(*JOB, {"metadata": {"finalizers": ["x/y"]}}))
    await cluster.delete(*JOB)
    cache.learn(await cluster.patch(*JOB, {"metadata": {"finalizers": []}}))
    assert cache.jobs() == []


class Forgetful(FakeCluster):
    """A watch that has expired at the first change it would tell."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def list(self, *given: Any, **named: Any) -> tuple[list[Resource], str]:
        self.lists += 1
        return await super().list(*given, **named)

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        async for change in super().watch(kinds, namespace, since):
            if self.lists <= 3:
                raise Conflict("expired")
            yield change


async def test_an_expired_watch_is_followed_by_a_new_list() -> None:
    cluster = Forgetful()
    told: list[tuple[str, str]] = []
    cache = a_cache(cluster, told)
    follow = asyncio.create_task(cache.follow())
    await asyncio.sleep(0.01)
    await cluster.create(a_job())
    async with asyncio.timeout(5):
        while not told:
            await asyncio.sleep(0.01)
    assert told == [("default", "job")]
    follow.cancel()
    assert isinstance(Lost("x"), Temporary)
