"""The Kubernetes API as `ebbtide.ports.Cluster`."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ebbtide import objects
from ebbtide.adapters.cluster_kubernetes.api import MERGE, Api, open_api
from ebbtide.adapters.cluster_kubernetes.forms import Forms, Render, read_page
from ebbtide.adapters.cluster_kubernetes.kinds import KINDS, Kind
from ebbtide.adapters.cluster_kubernetes.pods import MAIN
from ebbtide.adapters.cluster_kubernetes.watching import Watching
from ebbtide.errors import Conflict, Refused
from ebbtide.objects import Key, key_of
from ebbtide.ports import Change, Clock, Resource

PAGE = 500
_LIST_TRIES = 3
_FOLLOW_SILENCE = 4 * 3600.0
"""A pod may well say nothing for long; the API server ends an idle stream after four hours."""


@asynccontextmanager
async def open_kubernetes(
    *,
    manager: str,
    clock: Clock,
    kubeconfig: str = "",
    render: Render | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> AsyncIterator[KubernetesCluster]:
    """Connect to the API server. `manager`: who the writes are recorded as.

    `kubeconfig`: file with the way there; empty: the pod's service account, or kubectl's file.
    `render`: makes the spec of pods; without it none can be created. Raises Permanent.
    """
    async with open_api(manager=manager, kubeconfig=kubeconfig) as api:
        yield KubernetesCluster(api=api, forms=Forms(kinds=kinds, render=render), clock=clock)


class KubernetesCluster:
    """Objects of the API server behind `api`."""

    def __init__(self, *, api: Api, forms: Forms, clock: Clock) -> None:
        self.api = api
        self._forms, self._clock = forms, clock

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        return await self._object("GET", Key(kind, namespace, name))

    async def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Resource], str]:
        for left in reversed(range(_LIST_TRIES)):
            try:
                found, version = await self._pages(kind, namespace, labels)
            except Conflict:  # a page's token expired: the list has to be taken anew
                if not left:
                    raise
                continue
            return sorted(found, key=lambda one: key_of(one)[1:]), version
        raise AssertionError("the last try raises or returns")

    async def create(self, resource: Resource) -> Resource:
        objects.check_new(resource)
        key = key_of(resource)
        body = self._forms.write(resource)
        path = self._forms.kind(key.kind).path(key.namespace)
        query = {"fieldValidation": "Strict"}
        data = await self.api.call("POST", path, what=str(key), query=query, body=body)
        return self._forms.read(key.kind, data)

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        key = Key(kind, namespace, name)
        objects.check_patch(key, patch)
        body = self._forms.patch(kind, patch, resource_version)
        return await self._object("PATCH", key, body=body)

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource:
        meta = {} if resource_version is None else {"resourceVersion": resource_version}
        # An empty status would be written as one: a change where there was none.
        body = {"metadata": meta} | ({"status": dict(status)} if status else {})
        return await self._object("PATCH", Key(kind, namespace, name), "status", body=body)

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str | None = None,
        grace: float | None = None,
    ) -> None:
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = max(1, math.ceil(grace))
        key = Key(kind, namespace, name)
        path = self._forms.kind(kind).path(namespace, name)
        await self.api.call("DELETE", path, what=str(key), body=body)

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        if not since.isdecimal():
            raise Refused(f"cannot watch from version {since!r}: take the one that list returned")
        watching = Watching(api=self.api, forms=self._forms, clock=self._clock, namespace=namespace)
        async for change in watching.changes(kinds, since):
            yield change

    async def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """Lines of the pod's main container; unlike elsewhere they go with the pod."""
        query: dict[str, Any] = {"container": MAIN, "follow": "true" if follow else "false"}
        if tail is not None:
            query["tailLines"] = tail
        path = self._forms.kind("Pod").path(namespace, pod, "log")
        what = f"log of pod {namespace}/{pod}"
        async with self.api.stream(path, what=what, query=query, silence=_FOLLOW_SILENCE) as lines:
            async for line in lines:
                yield line

    async def _object(
        self, method: str, key: Key, subresource: str = "", body: Any = None
    ) -> Resource:
        path = self._forms.kind(key.kind).path(key.namespace, key.name, subresource)
        data = await self.api.call(method, path, what=str(key), body=body, content_type=MERGE)
        return self._forms.read(key.kind, data)

    async def _pages(
        self, kind: str, namespace: str | None, labels: Mapping[str, str] | None
    ) -> tuple[Sequence[Resource], str]:
        path, what = self._forms.kind(kind).path(namespace), f"list of {kind}"
        query: dict[str, Any] = {"limit": PAGE}
        if labels:
            query["labelSelector"] = ",".join(f"{name}={value}" for name, value in labels.items())
        found: list[Resource] = []
        while True:
            page = read_page(await self.api.call("GET", path, what=what, query=query))
            found += [self._forms.read(kind, item) for item in page.items or ()]
            if not page.metadata.more:
                return found, page.metadata.resource_version
            query["continue"] = page.metadata.more
