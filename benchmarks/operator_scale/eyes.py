"""The benchmark's own view of pools and of pods without a node: two watches, and nothing more.

A watch of all pods would cost this process and the API server as much as the operator's own, so
who is there is listed before and after, and times are those of the server's log (`trail`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from ebbtide import labels
from ebbtide.adapters.cluster_kubernetes.api import Api
from ebbtide.spec import API_VERSION

DECODE = "decode"


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    ready_replicas: int = 0


class _Spec(msgspec.Struct):
    replicas: int = 0


class _Object(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Object


class _List(msgspec.Struct):
    items: list[_Object]


_EVENT, _LIST = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_List)


@dataclass
class Pool:
    """A pool as it was last seen, and when (Unix s) its spec last changed.

    `actors`: names of its pods that nobody named to go.
    """

    replicas: int = 0
    ready: int = 0
    asked: float = 0.0
    actors: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for changes until it holds; raises AssertionError after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: not within {seconds:.0f} s") from None


@dataclass
class Eyes:
    """Follows one namespace. `unplaced`: told each pod that has no node yet."""

    api: Api
    namespace: str
    unplaced: Callable[[str], None]
    pools: dict[str, Pool] = field(default_factory=dict)

    async def watch(self) -> None:
        """Follow both kinds for ever, from the beginning of the namespace."""
        pods, pools = ("/api/v1", "pods"), (f"/apis/{API_VERSION}", "decodepools")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(*pods, self._see_pod, fieldSelector="spec.nodeName="))
            group.create_task(self._follow(*pools, self._see_pool))

    async def _follow(
        self, group: str, plural: str, see: Callable[[_Event], None], **query: str
    ) -> None:
        path = f"{group}/namespaces/{self.namespace}/{plural}"
        asked: Mapping[str, str] = {"watch": "true", "timeoutSeconds": "3600", **query}
        async with self.api.stream(path, what=plural, query=asked, silence=3600.0) as lines:
            async for line in lines:
                see(_EVENT.decode(line))
        raise AssertionError(f"the watch of {plural} has ended")

    def _see_pod(self, event: _Event) -> None:
        meta = event.object.metadata
        role = meta.labels.get(labels.ROLE)
        if event.type != "ADDED" or not role:
            return
        if role == DECODE:
            self.pool(meta.labels[labels.JOB]).actors.add(meta.name)
        self.unplaced(meta.name)

    def _see_pool(self, event: _Event) -> None:
        found, pool = event.object, self.pool(event.object.metadata.name)
        if pool.replicas != found.spec.replicas:
            pool.replicas, pool.asked = found.spec.replicas, time.time()
        pool.ready = found.status.ready_replicas
        pool.changed.set()

    def pool(self, name: str) -> Pool:
        """The pool of that name, seen or not."""
        return self.pools.setdefault(name, Pool())

    async def living(self) -> frozenset[str]:
        """Names of all actors that nobody ended, as the server lists them now."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        query = {"labelSelector": f"{labels.ROLE}={DECODE}", "resourceVersion": "0"}
        found = _LIST.decode(await self.api.call("GET", path, what="pods", query=query)).items
        return frozenset(one.metadata.name for one in found if not one.metadata.deletion_timestamp)
