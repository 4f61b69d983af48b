"""What people and planners do to many jobs at a steady rate, and how soon the operator answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.operator_scale.eyes import Eyes
from ebbtide.adapters.cluster_kubernetes import KubernetesCluster
from ebbtide.ports import Meta, Resource
from ebbtide.testing.jobs import a_spec

PATIENCE_SECONDS = 60.0
_POLL = 0.01
_MAKERS = 4


@dataclass
class Delays:
    """Seconds each."""

    written: list[float] = field(default_factory=list)
    """From a pool's new spec, as a watch tells it, to the child that was made or ended."""
    reported: list[float] = field(default_factory=list)
    """From a pod that is ready, as a watch tells it, to the pool's status."""
    bare: list[float] = field(default_factory=list)
    """From a write to the news of it on the same watch, without any operator."""


def percentile(values: Sequence[float], percent: float) -> float:
    """NaN where there is nothing."""
    return float(np.percentile(values, percent)) if values else float("nan")


@dataclass
class Load:
    """Jobs `job-0`, `job-1`... of one namespace, each with `actors` actors."""

    admin: KubernetesCluster
    eyes: Eyes
    jobs: int
    actors: int
    delays: Delays = field(default_factory=Delays)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    dice: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - no secret

    async def build(self, seconds: float) -> float:
        """Create every job and wait until all actors are ready; returns seconds taken."""
        began = time.perf_counter()
        names = iter([f"job-{n}" for n in range(self.jobs)])
        async with asyncio.TaskGroup() as group:
            for _ in range(_MAKERS):
                group.create_task(self._make(names))
        await until(self._built, seconds, f"{self.jobs} jobs")
        return time.perf_counter() - began

    async def _make(self, names: Iterator[str]) -> None:
        for name in names:
            await self.admin.create(self._job(name))

    def _job(self, name: str) -> Resource:
        sizes = {"replicas": self.actors, "maxReplicas": self.actors + 8, "pool": "h200"}
        spec = a_spec(decode=sizes, learner={"ranks": 1}, deadlines={"preRunningSeconds": 7200.0})
        meta = Meta(name=name, namespace=self.eyes.namespace)
        return Resource("rlhf.ebbtide.dev/v1alpha1", "RLHFJob", meta, spec=spec)

    def _built(self) -> bool:
        pools = self.eyes.pools.values()
        return len(pools) == self.jobs and all(pool.ready == self.actors for pool in pools)

    # --- a steady rate ----------------------------------------------------------------------------

    async def change(self, count: int, rate: float) -> float:
        """Make `count` changes at `rate` a second; returns the rate that came about."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                await asyncio.sleep(max(0.0, began + n / rate - time.perf_counter()))
                group.create_task(self._one(n))
            took = time.perf_counter() - began
        return count / max(took, count / rate)

    async def _one(self, n: int) -> None:
        name = f"job-{n % self.jobs}"
        async with self.locks[name]:
            await (self._shrink(name) if (n // self.jobs) % 2 else self._grow(name))
        if n % 10 == 0:
            await self._probe(n)

    async def _grow(self, name: str) -> None:
        before = self._actors(name)
        await self._scale(name, self.actors + 1)
        made = await self._appears(lambda: self._actors(name) - before)
        self.delays.written.append(self.eyes.pods[made].made - self.eyes.pools[name].asked)
        pool = self.eyes.pools[name]
        await until(lambda: pool.ready == self.actors + 1, PATIENCE_SECONDS, f"{made} is told")
        self.delays.reported.append(pool.told - self.eyes.pods[made].ready)

    async def _shrink(self, name: str) -> None:
        victim = self.dice.choice(sorted(self._actors(name)))
        pod, pool = self.eyes.pods[victim], self.eyes.pools[name]
        await self._scale(name, self.actors, victim)
        await until(lambda: pod.leaving > 0.0, PATIENCE_SECONDS, f"{victim} leaves")
        self.delays.written.append(pod.leaving - pool.asked)
        await until(lambda: pool.ready == self.actors, PATIENCE_SECONDS, f"{victim} is told gone")

    async def _appears(self, found: Callable[[], frozenset[str]]) -> str:
        await until(lambda: bool(found()), PATIENCE_SECONDS, "a new actor")
        return min(found())

    async def _probe(self, n: int) -> None:
        """A pod that nobody is responsible for: what the API server itself takes."""
        name, path = f"probe-{n}", f"/api/v1/namespaces/{self.eyes.namespace}/pods"
        container = {"name": "main", "image": "i"}
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        began = time.perf_counter()
        await self.admin.api.call("POST", path, what=name, body=body)
        await until(lambda: name in self.eyes.pods, PATIENCE_SECONDS, name)
        self.delays.bare.append(self.eyes.pods[name].made - began)
        await self.admin.api.call("DELETE", f"{path}/{name}", what=name)

    def _actors(self, job: str) -> frozenset[str]:
        return frozenset(self.eyes.pools[job].actors)

    async def _scale(self, name: str, replicas: int, *release: str) -> None:
        spec = {"replicas": replicas, "release": list(release)}
        await self.admin.patch("DecodePool", self.eyes.namespace, name, {"spec": spec})
        pool = self.eyes.pools[name]
        await until(lambda: pool.replicas == replicas, PATIENCE_SECONDS, f"news of {name}")

    # --- a storm ----------------------------------------------------------------------------------

    async def storm(self, count: int) -> tuple[int, int, float]:
        """Scale `count` pools down by one named actor each, all at once.

        Returns how many of the named left, how many others left or came, and seconds until every
        pool said so.
        """
        before = self.eyes.living()
        jobs = self.dice.sample(range(self.jobs), min(count, self.jobs))
        named = {f"job-{n}": self.dice.choice(sorted(self._actors(f"job-{n}"))) for n in jobs}
        began = time.perf_counter()
        sizes = {job: self.eyes.pools[job].replicas - 1 for job in named}
        await asyncio.gather(*(self._scale(job, sizes[job], pod) for job, pod in named.items()))
        told = lambda: all(self.eyes.pools[job].ready == sizes[job] for job in named)  # noqa: E731
        await until(told, PATIENCE_SECONDS, "the end of the storm")
        took = time.perf_counter() - began
        await asyncio.sleep(5.0)  # for whoever would go or come late
        left, came = before - self.eyes.living(), self.eyes.living() - before
        wrong = (left - set(named.values())) | came
        return len(left & set(named.values())), len(wrong), took


async def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until it holds; raises AssertionError after `seconds`."""
    deadline = time.perf_counter() + seconds
    while not holds():
        assert time.perf_counter() < deadline, f"{what}: not within {seconds:.0f} s"
        await asyncio.sleep(_POLL)
