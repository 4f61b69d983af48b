"""Objects here and in the API's JSON, both ways (pure).

Decoding drops what nobody reads (managedFields, most of a pod), which is what keeps a cache small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ebbtide.adapters.cluster_kubernetes.kinds import Kind, kind_of
from ebbtide.adapters.cluster_kubernetes.pods import ApiNode, ApiPod, read_node, read_pod
from ebbtide.errors import Refused
from ebbtide.ports import Meta, Owner, Resource

Render = Callable[[Resource], Mapping[str, Any]]
"""The API's spec of a Pod object: what the operator knows and nobody else."""


class ListMeta(
    msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "more": "continue"}
):
    """Where a list was taken, and the token of its next page."""

    resource_version: str = ""
    more: str = ""


class Page(msgspec.Struct, frozen=True):
    """One page of a list."""

    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] | None = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _Plain(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class _Manager(msgspec.Struct, frozen=True, rename={"fields": "fieldsV1"}):
    manager: str = ""
    subresource: str = ""
    fields: Mapping[str, Any] = {}


class _ManagedMeta(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_Manager, ...] = ()


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMeta


MANAGED: Mapping[str, tuple[str, ...]] = {"DecodePool": ("spec.replicas", "spec.release")}
"""Fields whose writers are told, by kind."""
_MANAGED = msgspec.json.Decoder(_Managed)
_PAGE = msgspec.json.Decoder(Page)
_EVENT = msgspec.json.Decoder(WatchEvent)
_POD = msgspec.json.Decoder(ApiPod)
_NODE = msgspec.json.Decoder(ApiNode)
_PLAIN = msgspec.json.Decoder(_Plain)
_ANY = msgspec.json.Decoder(dict[str, Any])


def read_page(data: bytes) -> Page:
    """A page of a list, its items still encoded."""
    return _PAGE.decode(data)


def read_event(line: bytes) -> WatchEvent:
    """A line of a watch, its object still encoded."""
    return _EVENT.decode(line)


class Forms:
    """Reads and writes objects of `kinds`; `render` gives the spec of pods that are created."""

    def __init__(self, *, kinds: Mapping[str, Kind], render: Render | None) -> None:
        self._kinds, self._render = kinds, render

    def kind(self, name: str) -> Kind:
        """The kind of that name; raises Refused."""
        return kind_of(name, self._kinds)

    def read(self, kind: str, data: bytes | msgspec.Raw) -> Resource:
        """One object from its JSON."""
        if kind == "Pod":
            return read_pod(_POD.decode(data))
        if kind == "Node":
            return read_node(_NODE.decode(data))
        found = self.kind(kind)
        if not found.flat:
            plain = _PLAIN.decode(data)
            meta = plain.metadata
            if kind in MANAGED:
                managers = _managers(_MANAGED.decode(data).metadata, MANAGED[kind])
                meta = msgspec.structs.replace(meta, managers=managers)
            return Resource(found.api_version, kind, meta, plain.spec, plain.status)
        fields = _ANY.decode(data)
        meta = msgspec.convert(fields.pop("metadata"), Meta)
        for name in ("apiVersion", "kind"):
            fields.pop(name, None)
        return Resource(found.api_version, kind, meta, spec=fields)

    def write(self, resource: Resource) -> dict[str, Any]:
        """The JSON of an object that is to be made."""
        kind = self.kind(resource.kind)
        head = {
            "apiVersion": kind.api_version,
            "kind": resource.kind,
            "metadata": self._meta(resource.metadata),
        }
        spec = self._spec(resource)
        if resource.kind == "Event":
            spec = _about(spec, resource.metadata.namespace, self.kind)
        return head | spec if kind.flat else head | {"spec": spec}

    def patch(self, kind: str, body: Mapping[str, Any], version: str | None) -> dict[str, Any]:
        """A merge patch of metadata and spec, which fails on another version than `version`."""
        meta = dict(body.get("metadata") or {})
        if version is not None:
            meta["resourceVersion"] = version
        if "ownerReferences" in meta:
            owners = msgspec.convert(meta["ownerReferences"], list[Owner])
            meta["ownerReferences"] = [self._owner(one) for one in owners]
        spec = _whole_seconds(body.get("spec") or {})
        head = {"metadata": meta} if meta else {}
        return head | (spec if self.kind(kind).flat else {"spec": spec} if spec else {})

    def _spec(self, resource: Resource) -> dict[str, Any]:
        if resource.kind != "Pod":
            return _whole_seconds(resource.spec)
        if self._render is None:
            raise Refused("this program makes no pods", field="/kind")
        return dict(self._render(resource))

    def _meta(self, meta: Meta) -> dict[str, Any]:
        owners = [self._owner(one) for one in meta.owner_references]
        given = {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": dict(meta.labels),
            "annotations": dict(meta.annotations),
            "finalizers": list(meta.finalizers),
            "ownerReferences": owners,
        }
        return {name: value for name, value in given.items() if value}

    def _owner(self, owner: Owner) -> dict[str, Any]:
        """The first owner controls; its deletion does not wait for what it owns."""
        return {
            "apiVersion": self.kind(owner.kind).api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
        }


def _managers(meta: _ManagedMeta, fields: tuple[str, ...]) -> dict[str, str]:
    """The writer of each of `fields`; one that nobody wrote is left out."""
    return {
        field: one.subresource or one.manager
        for one in meta.managed_fields
        for field in fields
        if _wrote(one.fields, field)
    }


def _wrote(fields: Mapping[str, Any], field: str) -> bool:
    part: Any = fields
    for name in field.split("."):
        if f"f:{name}" not in part:
            return False
        part = part[f"f:{name}"]
    return True


def _whole_seconds(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The API counts a lease's seconds in whole numbers."""
    name = "leaseDurationSeconds"
    return {**spec, name: math.ceil(spec[name])} if name in spec else dict(spec)


def _about(spec: Mapping[str, Any], namespace: str, kind: Callable[[str], Kind]) -> dict[str, Any]:
    """An event names its object in full and says who tells it."""
    about = dict(spec["involvedObject"])
    about |= {"apiVersion": kind(about["kind"]).api_version, "namespace": namespace}
    return {**spec, "involvedObject": about, "source": {"component": "ebbtide-operator"}}
