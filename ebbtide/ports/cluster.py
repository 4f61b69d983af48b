"""Objects: desired state and coarse status (protocol.md 14)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference; the owner's deletion deletes the object."""

    kind: str
    name: str
    uid: str


class Meta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Object metadata with the meaning that Kubernetes gives it. Times are RFC 3339.

    `managers`: who last wrote a field (spec.replicas), where the store records that and it matters;
    "scale" for whoever used that subresource.
    """

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: float | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    managers: Mapping[str, str] = {}


class Resource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One object. `spec` and `status` are JSON values; `ebbtide.spec` has their models."""

    api_version: str
    kind: str
    metadata: Meta
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class Change(msgspec.Struct, frozen=True):
    """type: ADDED | MODIFIED | DELETED | BOOKMARK."""

    type: str
    resource: Resource


class Cluster(Protocol):
    """Objects with optimistic concurrency; Kubernetes API or the local object store.

    Raises NotFound, Conflict (exists, or stale resource_version), Refused (invalid),
    Temporary. Deleting an object with finalizers only marks it. Status and spec are written
    apart: `patch` never touches status, `patch_status` never touches the rest. Patches are
    JSON merge patches; with `resource_version` they fail on a concurrent change.
    """

    async def get(self, kind: str, namespace: str, name: str) -> Resource: ...

    async def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Resource], str]:
        """The objects and the resource version to watch from."""
        ...

    def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        """Changes after `since`; raises Conflict("expired") when history does not reach it."""
        ...

    async def create(self, resource: Resource) -> Resource: ...

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource: ...

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource: ...

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str | None = None,
        grace: float | None = None,
    ) -> None:
        """Delete, or mark while finalizers remain.

        `uid` makes it fail on another object of that name. `grace` (seconds) replaces a pod's own
        terminationGracePeriodSeconds; a later call may shorten it.
        """
        ...

    def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """Lines of a pod's log, which outlive the pod."""
        ...
