"""Pods by which the API server is asked what it thinks of a job's templates (pure).

The operator makes the real ones. These have what a template may add, and beside it only what every
pod of a job has: the volumes whose names are taken, and the confinement that namespaces may demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ebbtide import labels
from ebbtide.spec import RLHFJob

ROLES = ("planner", "learner", "prefill", "decode", "reward")
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_POD = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
_TAKEN = {"tmp": "/tmp", "shm": "/dev/shm"}  # noqa: S108 - inside the container


def trials(job: RLHFJob) -> Iterator[tuple[str, dict[str, Any]]]:
    """A pod for each role with a template, and the pointer to that template."""
    for role in ROLES:
        part = getattr(job.spec, role)
        if part is not None and part.pod_template:
            pointer = f"/spec/{role}/podTemplate"
            yield pointer, _pod(f"{job.metadata.name}-{role}-trial", role, part.pod_template)


def _pod(name: str, role: str, template: Mapping[str, Any]) -> dict[str, Any]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    marks = {**(meta.get("labels") or {}), labels.ROLE: role}
    taken = [{"name": volume, "emptyDir": {}} for volume in _TAKEN]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "name": name, "labels": marks},
        "spec": {
            **spec,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": _POD,
            "volumes": [*spec.get("volumes", ()), *taken],
            "containers": [_container(next(iter(spec.get("containers", ())), {}))],
        },
    }


def _container(added: Mapping[str, Any]) -> dict[str, Any]:
    mounts = [{"name": volume, "mountPath": path} for volume, path in _TAKEN.items()]
    return {
        **added,
        "name": "main",
        "image": "trial",
        "securityContext": _CONFINED,
        "volumeMounts": [*added.get("volumeMounts", ()), *mounts],
    }
