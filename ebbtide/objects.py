"""What a read or write of an object means: the semantics of the Kubernetes API, on values (pure).

Used by the local object store and by the fake, which differ only in their `Table`. One global
counter stamps every change (resourceVersion); `generation` counts changes of the spec; an object
with finalizers is only marked by its deletion; what it owns goes with it. A write that changes
nothing leaves no trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from ebbtide.errors import Conflict, NotFound, Refused
from ebbtide.ports import Meta, Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_LIMIT = 253
_PATCHABLE = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})


class Key(NamedTuple):
    """Names one object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(resource: Resource) -> Key:
    """The key under which `resource` is stored."""
    return Key(resource.kind, resource.metadata.namespace, resource.metadata.name)


class Table(Protocol):
    """Where objects are kept; every verb below runs inside one transaction of it."""

    def next_version(self) -> int: ...

    def load(self, key: Key) -> Resource | None: ...

    def save(self, resource: Resource, change: str) -> None:
        """Store `resource` and its change (ADDED | MODIFIED) under its resourceVersion."""
        ...

    def erase(self, resource: Resource) -> None:
        """Forget the object; the change is DELETED with `resource` as its last state."""
        ...

    def exists(self, uid: str) -> bool: ...

    def owned_by(self, uid: str) -> Sequence[Resource]: ...


def rfc3339(unix: float) -> str:
    """Unix seconds as an RFC 3339 time in UTC with microseconds."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def unix_time(text: str) -> float:
    """Inverse of `rfc3339`; any RFC 3339 time is read."""
    return datetime.fromisoformat(text).timestamp()


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386): null removes, objects merge, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def matches(resource: Resource, labels: Mapping[str, str] | None) -> bool:
    """Whether the object carries all of `labels`."""
    own = resource.metadata.labels
    return all(own.get(name) == value for name, value in (labels or {}).items())


# --- verbs --------------------------------------------------------------------------------------


def get(table: Table, key: Key) -> Resource:
    """The object; raises NotFound."""
    found = table.load(key)
    if found is None:
        raise NotFound(f"{key} does not exist")
    return found


def create(table: Table, resource: Resource, *, uid: str, now: str) -> Resource:
    """Store a new object; raises Conflict when the name is taken, Refused when it is invalid."""
    check_new(resource)
    if table.load(key_of(resource)) is not None:
        raise Conflict(f"{key_of(resource)} exists already")
    _check_owners(table, resource)
    meta = msgspec.structs.replace(
        resource.metadata,
        uid=uid,
        generation=1,
        creation_timestamp=now,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    born = _stamped(table, msgspec.structs.replace(resource, metadata=meta, status={}))
    table.save(born, "ADDED")
    return born


def patch(
    table: Table, key: Key, body: Mapping[str, Any], *, expect: str | None, now: str
) -> Resource:
    """Merge `body` into metadata and spec; raises Conflict on another version than `expect`."""
    current = _current(table, key, expect)
    check_patch(key, body)
    meta = _merged_meta(current.metadata, body.get("metadata") or {})
    _check_finalizers(current.metadata, meta)
    spec = merge(current.spec, body.get("spec", {}))
    if spec != current.spec:
        meta = msgspec.structs.replace(meta, generation=meta.generation + 1)
    wanted = msgspec.structs.replace(current, metadata=meta, spec=spec)
    return _store(table, current, wanted, now)


def patch_status(
    table: Table, key: Key, status: Mapping[str, Any], *, expect: str | None, now: str
) -> Resource:
    """Merge `status` into the status alone; raises Conflict on another version than `expect`."""
    current = _current(table, key, expect)
    wanted = msgspec.structs.replace(current, status=merge(current.status, status))
    return _store(table, current, wanted, now)


def delete(table: Table, key: Key, *, uid: str | None, now: str, grace: float | None) -> None:
    """Remove, or only mark while finalizers remain; a repeated call may shorten the grace."""
    current = get(table, key)
    if uid is not None and current.metadata.uid != uid:
        raise Conflict(f"{key} is another object by now (uid {current.metadata.uid})")
    _mark(table, current, now=now, grace=grace)


# --- what the verbs share -------------------------------------------------------------------------


def _current(table: Table, key: Key, expect: str | None) -> Resource:
    current = get(table, key)
    if expect is not None and current.metadata.resource_version != expect:
        version = current.metadata.resource_version
        raise Conflict(f"{key} changed: version {version}, not {expect}; read it again")
    return current


def _store(table: Table, current: Resource, wanted: Resource, now: str) -> Resource:
    if wanted == current:
        return current
    stamped = _stamped(table, wanted)
    if stamped.metadata.deletion_timestamp and not stamped.metadata.finalizers:
        _remove(table, stamped, now)
    else:
        table.save(stamped, "MODIFIED")
    return stamped


def _stamped(table: Table, resource: Resource) -> Resource:
    version = str(table.next_version())
    meta = msgspec.structs.replace(resource.metadata, resource_version=version)
    return msgspec.structs.replace(resource, metadata=meta)


def _mark(table: Table, current: Resource, *, now: str, grace: float | None) -> None:
    meta = current.metadata
    old, since = meta.deletion_grace_period_seconds, meta.deletion_timestamp
    if since is not None and (grace is None or (old is not None and grace >= old)):
        return
    marked = msgspec.structs.replace(
        meta,
        generation=meta.generation + (since is None),
        deletion_timestamp=since or now,
        deletion_grace_period_seconds=grace,
    )
    _store(table, current, msgspec.structs.replace(current, metadata=marked), now)


def _remove(table: Table, last: Resource, now: str) -> None:
    table.erase(last)
    for child in table.owned_by(last.metadata.uid):
        owners = child.metadata.owner_references
        if not any(table.exists(owner.uid) for owner in owners):
            _mark(table, child, now=now, grace=None)


def _merged_meta(current: Meta, change: Mapping[str, Any]) -> Meta:
    merged = merge(msgspec.to_builtins(current), change)
    try:
        return msgspec.convert(merged, Meta)
    except msgspec.ValidationError as error:
        raise Refused(f"metadata: {error}", field="/metadata") from None


# --- checks ---------------------------------------------------------------------------------------


def check_new(resource: Resource) -> None:
    """Raise Refused unless `resource` may be created: its name, no version, no status."""
    meta = resource.metadata
    for field, value in (("name", meta.name), ("namespace", meta.namespace)):
        if not _NAME.fullmatch(value) or len(value) > _NAME_LIMIT:
            rule = "lower-case letters, digits, '-' and '.', at most 253, none at the ends"
            raise Refused(f"metadata.{field} {value!r} must be {rule}", field=f"/metadata/{field}")
    if meta.resource_version:
        hint = "leave it out when creating"
        raise Refused(f"metadata.resourceVersion is set: {hint}", field="/metadata/resourceVersion")
    if resource.status:
        raise Refused("status is written apart: leave it out when creating", field="/status")


def _check_owners(table: Table, resource: Resource) -> None:
    for owner in resource.metadata.owner_references:
        if not table.exists(owner.uid):
            raise NotFound(f"the owner {owner.kind} {owner.name} ({owner.uid}) does not exist")


def check_patch(key: Key, body: Mapping[str, Any]) -> None:
    """Raise Refused unless `body` changes nothing but labels, annotations, owners and the spec."""
    for name in body:
        if name not in ("metadata", "spec"):
            hint = "write it by patch_status" if name == "status" else "patch metadata or spec"
            raise Refused(f"{name} of {key} cannot be patched: {hint}", field=f"/{name}")
    for name in body.get("metadata") or {}:
        if name not in _PATCHABLE:
            raise Refused(f"metadata.{name} cannot be changed", field=f"/metadata/{name}")


def _check_finalizers(old: Meta, new: Meta) -> None:
    if old.deletion_timestamp and set(new.finalizers) - set(old.finalizers):
        raise Refused(
            "finalizers cannot be added to an object that is being deleted",
            field="/metadata/finalizers",
        )
