"""What holds for the operator as a whole, whatever users, pods and its own deaths do, in any order.

The core alone has laws of its own (test_reconcile_laws.py); here its cache, queue, lease and the
order of its writes take part, on virtual time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ebbtide import labels
from ebbtide.errors import Conflict, NotFound, Refused
from ebbtide.objects import Key
from ebbtide.ports import Resource
from ebbtide.testing.clock import VirtualLoop
from ebbtide.testing.jobs import a_job
from ebbtide_operator.controller import Controller
from tests.unit.operator.stage import JOB, MortalCluster, Platform

T = TypeVar("T")
HOLDS = ("Complete", "Failed")
RESYNC = 35.0
"""Seconds in which every job is looked at once more."""


def ended(job: Resource | None) -> str:
    """The terminal condition of the job, or empty."""
    found = job.status.get("conditions", ()) if job else ()
    return next((c["type"] for c in found if c["type"] in HOLDS and c["status"] == "True"), "")


class WitnessCluster(MortalCluster):
    """Notes each pod as it is made, and those that nobody may make any more."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.made_pods: list[tuple[str, str]] = []
        self.resurrected: list[str] = []

    async def create(self, resource: Resource) -> Resource:
        job = self.table.load(Key(*JOB))
        born = await super().create(resource)
        if resource.kind == "Pod":
            meta = resource.metadata
            self.made_pods.append((meta.labels[labels.JOB_UID], meta.name))
            if ended(job) and job and job.metadata.uid == meta.labels[labels.JOB_UID]:
                self.resurrected.append(meta.name)
        return born


class Running(RuleBasedStateMachine):
    """One name, one job after another under it; an operator that dies; a kubelet that does not."""

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.play(self._start())

    async def _start(self) -> None:
        self.platform = Platform()
        seen = WitnessCluster(wall=self.platform.clock.wall)
        seen.table, seen._moved = self.platform.cluster.table, self.platform.cluster._moved
        self.cluster = self.platform.cluster = seen
        self.kubelet = asyncio.create_task(self.platform.run_pods())
        self.ends: dict[str, str] = {}
        await self._begin()
        await self.platform.kubelet.create(a_job())

    async def _begin(self) -> Controller:
        self.life = AsyncExitStack()
        return await self.life.enter_async_context(self.platform.operator())

    def play(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def users(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Somebody asks for something; the store may well refuse it."""

        async def ask() -> None:
            with suppress(NotFound, Conflict, Refused):
                await act()

        self.play(ask())

    # --- what may happen ------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 2.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.play(self.platform.clock.sleep(seconds))

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        body = {"spec": {"suspend": suspend}}
        self.users(lambda: self.platform.kubelet.patch(*JOB, body))

    @rule(replicas=st.integers(0, 4), release=st.lists(st.integers(0, 5), max_size=2))
    def scale(self, replicas: int, release: list[int]) -> None:
        spec = {"replicas": replicas, "release": [f"job-decode-{n}" for n in release]}
        pool = ("DecodePool", *JOB[1:])
        self.users(lambda: self.platform.kubelet.patch(*pool, {"spec": spec}))

    @rule()
    def delete(self) -> None:
        self.users(lambda: self.platform.kubelet.delete(*JOB))

    @rule()
    def submit(self) -> None:
        self.users(lambda: self.platform.kubelet.create(a_job()))

    @rule(outcome=st.sampled_from(["complete", "failed"]))
    def report(self, outcome: str) -> None:
        body = {"progress": {"outcome": outcome}}
        self.users(lambda: self.platform.kubelet.patch_status(*JOB, body))

    @rule()
    def cancel(self) -> None:
        body = {"metadata": {"annotations": {labels.CANCEL: "true"}}}
        self.users(lambda: self.platform.kubelet.patch(*JOB, body))

    @rule(pick=st.integers(0, 9), how=st.sampled_from([(0, None), (1, None), (None, 9)]))
    def fail(self, pick: int, how: tuple[int | None, int | None]) -> None:
        running = [pod for pod in self._pods() if pod.status.get("phase") == "Running"]
        if running:
            name = running[pick % len(running)].metadata.name
            self.users(lambda: self.platform.end(name, code=how[0], signal=how[1]))

    @rule(pick=st.integers(0, 9))
    def evict(self, pick: int) -> None:
        if names := self.platform.pods():
            name = names[pick % len(names)]
            self.users(lambda: self.platform.kubelet.delete("Pod", "default", name))

    @rule(writes=st.integers(1, 8), late=st.booleans())
    def die(self, writes: int, late: bool) -> None:
        """The operator ends at one of its next writes; another starts."""
        self.cluster.dies_at, self.cluster.late = self.cluster.writes + writes, late
        self.play(self._succeed(1.0))

    @rule()
    def hand_over(self) -> None:
        self.play(self._succeed(0.0))

    async def _succeed(self, seconds: float) -> None:
        await self.platform.clock.sleep(seconds)
        await self.life.aclose()
        self.cluster.dies_at = -1
        await self._begin()

    # --- what must hold -------------------------------------------------------------------------

    def _job(self) -> Resource | None:
        return self.cluster.table.load(Key(*JOB))

    def _pods(self) -> list[Resource]:
        return [one for one in self.cluster.table.objects.values() if one.kind == "Pod"]

    @invariant()
    def no_pod_is_made_for_a_job_that_has_ended(self) -> None:
        assert self.cluster.resurrected == []

    @invariant()
    def an_end_is_for_good(self) -> None:
        job = self._job()
        if job is not None:
            before = self.ends.setdefault(job.metadata.uid, ended(job)) or ended(job)
            assert ended(job) == before
            self.ends[job.metadata.uid] = before

    @invariant()
    def no_name_is_used_twice_by_a_job(self) -> None:
        assert len(set(self.cluster.made_pods)) == len(self.cluster.made_pods)

    @invariant()
    def nobody_is_an_orphan(self) -> None:
        table = self.cluster.table
        for pod in self._pods():
            owned = any(table.exists(one.uid) for one in pod.metadata.owner_references)
            assert owned or pod.metadata.deletion_timestamp

    def teardown(self) -> None:
        """Left alone, everything comes to rest, and another look at it changes nothing."""
        if not hasattr(self, "runner"):
            return
        try:
            self.play(self._rest())
        finally:
            self.play(self._end())
            self.runner.close()

    async def _rest(self) -> None:
        await self.platform.clock.sleep(400.0)
        job, pool = self._job(), self.cluster.table.load(Key("DecodePool", *JOB[1:]))
        names = self.platform.pods()
        if job is None or ended(job) or job.spec.get("suspend"):
            assert names == []
        else:
            assert self.platform.holds("Running")
            assert pool is not None
            assert sum("decode" in name for name in names) == pool.spec["replicas"]
        before = self._objects()
        await self.platform.clock.sleep(RESYNC)
        assert self._objects() == before

    def _objects(self) -> dict[str, Any]:
        found = self.cluster.table.objects.items()
        return {str(k): msgspec.to_builtins(one) for k, one in found if k.kind != "Lease"}

    async def _end(self) -> None:
        await self.life.aclose()
        self.kubelet.cancel()
        with suppress(asyncio.CancelledError):
            await self.kubelet


class Longer(Running):
    """The same, for many more orders."""


def _examples(number: int) -> settings:
    return settings(
        max_examples=number,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


Running.TestCase.settings = _examples(6)
Longer.TestCase.settings = _examples(300)
TestRunning = Running.TestCase
TestLonger = pytest.mark.slow(Longer.TestCase)
