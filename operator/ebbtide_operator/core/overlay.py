"""A job's own additions laid over a pod that the operator made (pure).

The operator's part always wins: maps are united, lists joined, and nothing that it set is replaced
but what a container asks for. `ebbtide.spec.templates` says what can be in a template at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide_operator.core.nearness import joined_affinity

_MAPS = ("nodeSelector",)
_LISTS = ("tolerations", "topologySpreadConstraints", "volumes")
_WORDS = ("schedulerName", "runtimeClassName")


def overlay(pod: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a pod with the template's `spec` laid over it."""
    found = dict(pod)
    for name in _MAPS:
        united(found, template, name)
    for name in _LISTS:
        joined(found, template, name)
    for name in _WORDS:
        if name in template:
            found.setdefault(name, template[name])
    if template.get("affinity"):
        found["affinity"] = joined_affinity(found.get("affinity", {}), template["affinity"])
    added: Mapping[str, Any] = next(iter(template.get("containers", ())), {})
    found["containers"] = [_container(one, added) for one in pod["containers"]]
    return found


def united(found: dict[str, Any], added: Mapping[str, Any], name: str) -> None:
    """Both maps; of a name that is in both, the value that `found` has."""
    if name in added:
        found[name] = {**added[name], **found.get(name, {})}


def joined(found: dict[str, Any], added: Mapping[str, Any], name: str) -> None:
    """Both lists, one after the other."""
    if name in added:
        found[name] = [*found.get(name, ()), *added[name]]


def _container(made: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(made)
    joined(found, added, "env")
    joined(found, added, "volumeMounts")
    for kind, asked in added.get("resources", {}).items():
        known = found.get("resources", {})
        more = asked if isinstance(asked, list) else {**known.get(kind, {}), **asked}
        found["resources"] = {**known, kind: more}
    return found
