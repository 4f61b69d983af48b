"""What people and planners do to many jobs at a steady rate, and in a storm."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.operator_scale.eyes import Eyes
from benchmarks.operator_scale.programs import ended
from benchmarks.operator_scale.trail import Change
from ebbtide.adapters.cluster_kubernetes import KubernetesCluster
from ebbtide.ports import Meta, Resource
from ebbtide.testing.jobs import a_spec

PATIENCE_SECONDS = 60.0
_POLL = 0.25
_MAKERS = 4


@dataclass
class Load:
    """Jobs `job-0`, `job-1`... of one namespace, each with `actors` actors."""

    admin: KubernetesCluster
    eyes: Eyes
    jobs: int
    actors: int
    changes: list[Change] = field(default_factory=list)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    dice: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - no secret

    async def build(self, seconds: float) -> float:
        """Create every job and wait until all actors are ready; returns seconds taken."""
        began = time.perf_counter()
        names = iter([f"job-{n}" for n in range(self.jobs)])
        async with asyncio.TaskGroup() as group:
            for _ in range(_MAKERS):
                group.create_task(self._make(names))
        while not self._built():
            left = self.jobs - self._whole()
            assert time.perf_counter() - began < seconds, f"{left} jobs not within {seconds:.0f} s"
            assert not ended(), f"{', '.join(ended())} ended"
            await asyncio.sleep(_POLL)
        return time.perf_counter() - began

    async def _make(self, names: Iterator[str]) -> None:
        for name in names:
            await self.admin.create(self._job(name))

    def _job(self, name: str) -> Resource:
        sizes = {"replicas": self.actors, "maxReplicas": self.actors + 8, "pool": "h200"}
        spec = a_spec(decode=sizes, learner={"ranks": 1}, deadlines={"preRunningSeconds": 7200.0})
        meta = Meta(name=name, namespace=self.eyes.namespace)
        return Resource("rlhf.ebbtide.dev/v1alpha1", "RLHFJob", meta, spec=spec)

    def _whole(self) -> int:
        return sum(pool.ready == self.actors for pool in self.eyes.pools.values())

    def _built(self) -> bool:
        return self._whole() == self.jobs

    # --- a steady rate ----------------------------------------------------------------------------

    async def change(self, count: int, rate: float) -> None:
        """Make `count` changes at `rate` a second, each job's one after the other."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                await asyncio.sleep(max(0.0, began + n / rate - time.perf_counter()))
                group.create_task(self._one(n))

    async def _one(self, n: int) -> None:
        """One pool larger by an actor, or smaller by one that is named."""
        name = f"job-{n % self.jobs}"
        async with self.locks[name]:
            if (n // self.jobs) % 2:
                victim = self.dice.choice(sorted(self.eyes.pools[name].actors))
                await self._scale(name, self.actors, victim)
            else:
                await self._scale(name, self.actors + 1)

    async def _scale(self, name: str, replicas: int, victim: str = "") -> None:
        """Patch the pool, and wait until its status says that it is so."""
        pool = self.eyes.pools[name]
        pool.actors.discard(victim)
        spec = {"replicas": replicas, "release": [victim] if victim else []}
        await self.admin.patch("DecodePool", self.eyes.namespace, name, {"spec": spec})
        told = f"{name} to {replicas}"
        await pool.until(lambda: pool.ready == pool.replicas == replicas, PATIENCE_SECONDS, told)
        self.changes.append(Change(name, replicas, victim, pool.asked))

    # --- a storm ----------------------------------------------------------------------------------

    async def storm(self, count: int) -> tuple[int, int, float]:
        """Scale `count` pools down by one named actor each, all at once.

        Returns how many of the named left, how many others left or came, and seconds until every
        pool said so.
        """
        before = await self.eyes.living()
        jobs = self.dice.sample(range(self.jobs), min(count, self.jobs))
        pools = {f"job-{n}": self.eyes.pools[f"job-{n}"] for n in jobs}
        named = {job: self.dice.choice(sorted(pool.actors)) for job, pool in pools.items()}
        began = time.perf_counter()
        scaled = (self._scale(job, pools[job].replicas - 1, named[job]) for job in pools)
        await asyncio.gather(*scaled)
        took = time.perf_counter() - began
        await asyncio.sleep(5.0)  # for whoever would go or come late
        after = await self.eyes.living()
        left, wrong = before - after, (before ^ after) - set(named.values())
        return len(left & set(named.values())), len(wrong), took
