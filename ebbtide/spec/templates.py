"""What a user may add to the pods of a role, and nothing else (pure).

Whoever may create a job must gain no more by it than the job needs, so every field that is not
listed here is refused: whatever reaches the host, other people's secrets, another account, another
image, or takes a privilege. What the fields mean is Kubernetes' own affair, and the API server
checks it when the pod is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_BYTES = 16_384
_KEPT = ("rlhf.ebbtide.dev/", "kueue.x-k8s.io/", "pod-security.kubernetes.io/")
_META = frozenset({"labels", "annotations"})
_POD = frozenset(
    {
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "schedulerName",
        "runtimeClassName",
        "volumes",
        "containers",
    }
)
_CONTAINER = frozenset({"name", "env", "resources", "volumeMounts"})
_VOLUMES = frozenset({"name", "emptyDir", "configMap", "persistentVolumeClaim", "ephemeral"})
_SOURCES = frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef"})


def fence(template: Mapping[str, Any]) -> str:
    """What the template may not have, with the way there and a fix; empty if all is well."""
    if len(json.dumps(template)) > _BYTES:
        return f"more than {_BYTES} bytes of JSON: give only what differs from the site's pods"
    return next(_faults(template), "")


def _faults(template: Mapping[str, Any]) -> Iterator[str]:
    yield from _others("", template, frozenset({"metadata", "spec"}))
    meta, spec = _part(template, "metadata"), _part(template, "spec")
    yield from _others("metadata.", meta, _META)
    for field in sorted(_META & meta.keys()):
        yield from _words(f"metadata.{field}", meta[field])
    yield from _others("spec.", spec, _POD)
    for name, volume in _each(spec, "volumes"):
        yield from _others(f"spec.volumes.{name}.", volume, _VOLUMES)
    for name, container in _each(spec, "containers"):
        yield from _container(name, container)


def _container(name: str, container: Mapping[str, Any]) -> Iterator[str]:
    where = f"spec.containers.{name}."
    if name != "main":
        yield f"{where[:-1]}: the only container is main; sidecars are the site's"
    yield from _others(where, container, _CONTAINER)
    for variable, given in _each(container, "env"):
        if variable.startswith("EBBTIDE_"):
            yield f"{where}env.{variable}: variables of this platform are the operator's"
        source = _part(given, "valueFrom")
        yield from _others(f"{where}env.{variable}.valueFrom.", source, _SOURCES)


def _others(where: str, part: Any, allowed: frozenset[str]) -> Iterator[str]:
    if not isinstance(part, Mapping):
        yield f"{where[:-1]} is no object"
        return
    for field in sorted(part.keys() - allowed):
        yield f"{where}{field} is not for jobs to set; allowed: {', '.join(sorted(allowed))}"


def _words(where: str, words: Any) -> Iterator[str]:
    if not isinstance(words, Mapping) or not all(isinstance(w, str) for w in words.values()):
        yield f"{where} maps names to words"
        return
    for name in sorted(words):
        if name.startswith(_KEPT):
            yield f"{where}.{name} is the operator's"


def _part(whole: Mapping[str, Any], name: str) -> Any:
    found = whole.get(name)
    return {} if found is None else found


def _each(whole: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Named items of a list; one that is none has no name, and is refused by its fields."""
    items = whole.get(name, ()) if isinstance(whole, Mapping) else ()
    for item in items if isinstance(items, list | tuple) else ({"": name},):
        known = item if isinstance(item, Mapping) else {"": item}
        yield str(known.get("name", "?")), known
