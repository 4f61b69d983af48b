"""What is seen of pods and pools by one watch each: the same news as the operator gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ebbtide import labels
from ebbtide.adapters.cluster_kubernetes.api import Api
from ebbtide.spec import API_VERSION


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] = []
    ready_replicas: int = 0
    replicas: int = 0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    replicas: int = 0


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Object


DECODE = "decode"
_EVENT = msgspec.json.Decoder(_Event)


@dataclass
class Pod:
    """Times (s, of this process's clock) at which a pod was first seen so; 0: not yet."""

    made: float
    ready: float = 0.0
    leaving: float = 0.0


@dataclass
class Pool:
    """A pool as it was last seen, and when its spec and its count of ready actors last changed.

    `actors`: names of its pods that nobody ended.
    """

    replicas: int = 0
    ready: int = 0
    asked: float = 0.0
    told: float = 0.0
    actors: set[str] = field(default_factory=set)


@dataclass
class Eyes:
    """Follows one namespace. `unplaced`: told each pod that has no node yet."""

    api: Api
    namespace: str
    unplaced: Callable[[str], None]
    pods: dict[str, Pod] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)

    async def watch(self) -> None:
        """Follow both kinds for ever, from the beginning of the namespace."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow("/api/v1", "pods", self._see_pod))
            group.create_task(self._follow(f"/apis/{API_VERSION}", "decodepools", self._see_pool))

    async def _follow(self, group: str, plural: str, see: Callable[[_Event], None]) -> None:
        path = f"{group}/namespaces/{self.namespace}/{plural}"
        query = {"watch": "true", "timeoutSeconds": 3600}
        async with self.api.stream(path, what=plural, query=query, silence=3600.0) as lines:
            async for line in lines:
                see(_EVENT.decode(line))
        raise AssertionError(f"the watch of {plural} has ended")

    def _see_pod(self, event: _Event) -> None:
        meta, now = event.object.metadata, time.perf_counter()
        if event.type == "DELETED":
            self.pods.pop(meta.name, None)
            self._forget(meta)
            return
        pod = self.pods.get(meta.name)
        if pod is None:
            pod = self._meet(meta, now, placed=bool(event.object.spec.node_name))
        if meta.deletion_timestamp and not pod.leaving:
            pod.leaving = now
            self._forget(meta)
        if not pod.ready and _ready(event.object):
            pod.ready = now

    def _meet(self, meta: _Meta, now: float, *, placed: bool) -> Pod:
        pod = self.pods[meta.name] = Pod(made=now)
        role = meta.labels.get(labels.ROLE, "")
        if role == DECODE:
            self._pool(meta.labels[labels.JOB]).actors.add(meta.name)
        if role and not placed:
            self.unplaced(meta.name)
        return pod

    def _forget(self, meta: _Meta) -> None:
        if meta.labels.get(labels.ROLE) == DECODE:
            self._pool(meta.labels[labels.JOB]).actors.discard(meta.name)

    def _pool(self, name: str) -> Pool:
        return self.pools.setdefault(name, Pool())

    def _see_pool(self, event: _Event) -> None:
        found, now = event.object, time.perf_counter()
        pool = self._pool(found.metadata.name)
        if pool.replicas != found.spec.replicas:
            pool.replicas, pool.asked = found.spec.replicas, now
        if pool.ready != found.status.ready_replicas:
            pool.ready, pool.told = found.status.ready_replicas, now

    def living(self) -> set[str]:
        """Names of all actors that nobody ended."""
        return {name for pool in self.pools.values() for name in pool.actors}

    def settled(self) -> bool:
        """Whether every pool is as large, and as ready, as it is asked to be."""
        return all(pool.ready == pool.replicas for pool in self.pools.values())


def _ready(found: _Object) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)
