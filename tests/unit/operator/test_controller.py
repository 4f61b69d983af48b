"""The operator's shell over fakes, on virtual time: queue, cache, lease, order of writes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog

from ebbtide import paths, usage
from ebbtide.errors import Conflict, NotFound
from ebbtide.objects import rfc3339
from ebbtide.ports import Resource
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.jobs import a_job
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


ALL = [
    "job-decode-0",
    "job-decode-1",
    "job-learner-1-0",
    "job-learner-1-1",
    "job-planner-1-0",
    "job-reward-0",
]


def test_a_job_is_brought_up_and_people_are_told() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            assert platform.pods() == ALL
            assert platform.events()["RolesReady"] == 1

    play(scene)


def test_the_same_event_counts_up() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            for name in ("job-planner-1-0", "job-planner-1-1"):
                await platform.until(lambda: platform.holds("Running"))
                await platform.end(name, signal=9)
                await platform.until(lambda: not platform.holds("Running"))
            await platform.until(lambda: platform.holds("Running"))
            assert platform.events()["RolesReady"] == 3

    play(scene)


def test_held_time_is_written_while_a_pod_lives_and_closed_when_it_ends() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            pod = await platform.cluster.get("Pod", "default", "job-decode-0")
            path = paths.usage(job.metadata.uid, "job-decode-0", pod.metadata.uid)
            await platform.clock.sleep(60.0)
            living = usage.decode(platform.blobs.objects[path])
            assert living.ended_at is None
            assert living.seconds > 45.0
            await platform.end("job-decode-0", signal=9)
            await platform.until(lambda: "job-decode-0" not in platform.pods())
            assert usage.decode(platform.blobs.objects[path]).ended_at is not None

    play(scene)


def test_a_deleted_job_leaves_nothing_but_its_held_time() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator() as controller:
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await platform.cluster.delete(*JOB)
            await platform.until(lambda: not platform.pods() and not platform.status())
            await platform.clock.sleep(5.0)
            assert controller.cache.jobs() == []
            assert {key.kind for key in platform.cluster.table.objects} == {"Lease"}
            ends = [usage.decode(data).ended_at for data in platform.blobs.objects.values()]
            assert len(ends) == 6
            assert None not in ends

    play(scene)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 24, 2))
def test_an_operator_that_dies_at_any_write_is_continued_by_the_next(
    dies_at: int, late: bool
) -> None:
    async def scene(platform: Platform) -> None:
        await platform.kubelet.create(a_job())
        platform.cluster.dies_at, platform.cluster.late = dies_at, late
        async with platform.operator():
            await platform.clock.sleep(20.0)
        platform.cluster.dies_at = -1
        async with platform.operator():
            await platform.until(lambda: platform.holds("Running"))
            await platform.clock.sleep(20.0)
            found = platform.pods()
            # Numbers of actors and scorers may have been skipped; nothing else may differ.
            assert [n for n in found if "-1-" in n] == [n for n in ALL if "-1-" in n]
            assert [n.rsplit("-", 1)[0] for n in found] == [n.rsplit("-", 1)[0] for n in ALL]
            assert platform.status()["attempt"] == 1
            assert platform.status().get("restarts", 0) == 0

    play(scene)


def test_only_the_holder_of_the_lease_writes() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            async with platform.operator() as second:
                await platform.clock.sleep(60.0)
                assert not second.cache.heard
        async with platform.operator() as third:
            await platform.until(lambda: third.cache.heard, seconds=10.0)

    play(scene)


def test_an_operator_without_its_lease_writes_nothing() -> None:
    async def scene(platform: Platform) -> None:
        lease = Lease(
            cluster=platform.cluster,
            clock=platform.clock,
            holder="a",
            seconds=6.0,
            namespace="default",
        )
        await lease.acquire()
        lease.check()
        await platform.clock.sleep(4.1)  # not renewed for longer than two thirds of its time
        with pytest.raises(Lost):
            lease.check()

    play(scene)


def test_a_job_that_cannot_be_judged_does_not_stop_the_others() -> None:
    async def scene(platform: Platform) -> None:
        await platform.cluster.create(a_job("broken"))
        broken = ("RLHFJob", "default", "broken")
        await platform.cluster.patch(*broken, {"metadata": {"finalizers": ["x/y"]}})
        await platform.cluster.patch_status(*broken, {"attempt": "not a number"})
        async with platform.operator():
            await platform.clock.sleep(1.0)
            await platform.cluster.create(a_job())
            await platform.until(lambda: "job-planner-1-0" in platform.pods())

    play(scene)


def test_a_failing_blob_store_holds_pods_back_until_their_time_is_written() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            platform.blobs.outcomes = iter(["fail"] * 200)
            await platform.cluster.delete(*JOB)
            await platform.clock.sleep(10.0)
            assert platform.pods() == ALL
            platform.blobs.outcomes = iter(())
            await platform.until(lambda: platform.pods() == [])

    play(scene)
