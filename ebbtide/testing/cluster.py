"""A cluster in memory: the object store's verbs over dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ebbtide import objects
from ebbtide.errors import Conflict, NotFound, Refused
from ebbtide.objects import Key, key_of, matches
from ebbtide.ports import Change, Resource

T = TypeVar("T")


class MemoryTable:
    """Implements `ebbtide.objects.Table`; keeps the last `history` changes."""

    def __init__(self, *, history: int = 1_000_000) -> None:
        self.objects: dict[Key, Resource] = {}
        self.changes: list[Change] = []
        self.latest = 0
        self.made = 0
        self.pruned = 0
        self._keep = history

    def next_version(self) -> int:
        self.latest += 1
        return self.latest

    def load(self, key: Key) -> Resource | None:
        return self.objects.get(key)

    def save(self, resource: Resource, change: str) -> None:
        self.objects[key_of(resource)] = resource
        self._record(Change(change, resource))

    def erase(self, resource: Resource) -> None:
        del self.objects[key_of(resource)]
        self._record(Change("DELETED", resource))

    def exists(self, uid: str) -> bool:
        return any(found.metadata.uid == uid for found in self.objects.values())

    def owned_by(self, uid: str) -> list[Resource]:
        return [
            found
            for found in self.objects.values()
            if any(owner.uid == uid for owner in found.metadata.owner_references)
        ]

    def _record(self, change: Change) -> None:
        self.changes.append(change)
        if len(self.changes) > self._keep:
            self.pruned = int(self.changes.pop(0).resource.metadata.resource_version)


class FakeCluster:
    """Implements `ebbtide.ports.Cluster`. `logs_of` maps pod names to lines.

    `wall` gives Unix seconds; without it every change is stamped with the epoch.
    """

    def __init__(
        self, *, wall: Callable[[], float] = lambda: 0.0, history: int = 1_000_000
    ) -> None:
        self.table = MemoryTable(history=history)
        self.logs_of: dict[str, list[bytes]] = {}
        self._wall = wall
        self._moved = asyncio.Condition()

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        return objects.get(self.table, Key(kind, namespace, name))

    async def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Resource], str]:
        found = [
            self.table.objects[key]
            for key in sorted(self.table.objects)
            if key.kind == kind and namespace in (None, key.namespace)
        ]
        return [one for one in found if matches(one, labels)], str(self.table.latest)

    async def create(self, resource: Resource) -> Resource:
        self.table.made += 1
        born = objects.create(self.table, resource, uid=f"uid-{self.table.made}", now=self._now())
        return await self._told(born)

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        key = Key(kind, namespace, name)
        return await self._told(
            objects.patch(self.table, key, patch, expect=resource_version, now=self._now())
        )

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        key = Key(kind, namespace, name)
        return await self._told(
            objects.patch_status(self.table, key, status, expect=resource_version, now=self._now())
        )

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str | None = None,
        grace: float | None = None,
    ) -> None:
        objects.delete(
            self.table, Key(kind, namespace, name), uid=uid, now=self._now(), grace=grace
        )
        await self._told(None)

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        if not since.isdecimal():
            raise Refused(f"cannot watch from version {since!r}: take the one that list returned")
        position = int(since)
        while True:
            if position < self.table.pruned or position > self.table.latest:
                raise Conflict("expired: list again and watch from there")
            for change in self._after(position):
                meta = change.resource.metadata
                position = int(meta.resource_version)
                if change.resource.kind in kinds and namespace in (None, meta.namespace):
                    yield change
            async with self._moved:
                await self._moved.wait_for(partial(self._beyond, position))

    async def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        del follow  # what is there is all that will come
        if pod not in self.logs_of:
            raise NotFound(f"there is no log of pod {namespace}/{pod}")
        lines = self.logs_of[pod]
        for line in lines if tail is None else lines[max(0, len(lines) - tail) :]:
            yield line

    def _beyond(self, position: int) -> bool:
        return self.table.latest > position

    def _after(self, position: int) -> Sequence[Change]:
        return [
            change
            for change in self.table.changes
            if int(change.resource.metadata.resource_version) > position
        ]

    def _now(self) -> str:
        return objects.rfc3339(self._wall())

    async def _told(self, result: T) -> T:
        async with self._moved:
            self._moved.notify_all()
        return result
