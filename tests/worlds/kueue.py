"""Kueue's part of a cluster, played: its webhook holds queued pods back, and we let them go.

What is real is all that the operator sees of it: gates, the condition that says so, and pods that
are deleted to make room.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.worlds.platform import Platform

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
PRIORITY = "kueue.x-k8s.io/priority-class"
GATE = "kueue.x-k8s.io/admission"
_VERSION = "admissionregistration.k8s.io/v1beta1"
_ADD_GATE = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'
_POLICY: dict[str, Any] = {
    "apiVersion": _VERSION,
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "queued-pods"},
    "spec": {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
                | {"resources": ["pods"]}
            ]
        },
        "matchConditions": [
            {"name": "queued", "expression": f"'{QUEUE}' in object.metadata.?labels.orValue({{}})"}
        ],
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _ADD_GATE}}
        ],
    },
}
_BINDING = {
    "apiVersion": _VERSION,
    "kind": "MutatingAdmissionPolicyBinding",
    "metadata": {"name": "queued-pods"},
    "spec": {"policyName": "queued-pods"},
}


class Kueue:
    """Of one namespace."""

    def __init__(self, scene: Platform) -> None:
        self._scene = scene
        self._path = f"/api/v1/namespaces/{scene.namespace}/pods"

    async def install(self) -> None:
        """Hold queued pods back from now on."""
        for document in (_POLICY, _BINDING):
            self._scene.plane.apply(document)
        await self._scene.eventually(lambda: asyncio.to_thread(self._holds_back))

    def _holds_back(self) -> bool:
        pod = {
            "metadata": {"name": "probe", "labels": {QUEUE: "q"}},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        }
        made = self._scene.plane.call("POST", f"{self._path}?dryRun=All", pod)
        return bool(made["spec"].get("schedulingGates"))

    async def waiting(self) -> list[str]:
        """Names of the pods that are held back."""
        pods = (await self._scene.kubelet.pods()).items()
        return sorted(name for name, pod in pods if pod["spec"].get("schedulingGates"))

    async def admit(self, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Let go what is wanted, whole groups or nothing; returns whom."""
        pods = await self._scene.kubelet.pods()
        groups: dict[str, list[str]] = defaultdict(list)
        for name, pod in pods.items():
            if wanted(name) and pod["spec"].get("schedulingGates"):
                groups[pod["metadata"]["labels"].get(GROUP, name)].append(name)
        whole = [name for group in groups.values() if _is_whole(group, pods) for name in group]
        for name in whole:
            ungated: dict[str, Any] = {"spec": {"schedulingGates": []}}
            await asyncio.to_thread(self._scene.plane.merge, f"{self._path}/{name}", ungated)
        return sorted(whole)

    async def preempt(self, name: str) -> None:
        """Delete a pod to make room, and say why as Kueue does."""
        why = {
            "type": "TerminationTarget",
            "status": "True",
            "reason": "WorkloadEvictedDueToPreempted",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        conditions = (await self._scene.kubelet.pods())[name]["status"]["conditions"]
        status = {"status": {"conditions": [*conditions, why]}}
        path = f"{self._path}/{name}"
        await asyncio.to_thread(self._scene.plane.merge, f"{path}/status", status)
        await asyncio.to_thread(self._scene.plane.call, "DELETE", path)


def _is_whole(group: list[str], pods: dict[str, dict[str, Any]]) -> bool:
    totals = {pods[name]["metadata"]["annotations"].get(TOTAL, "1") for name in group}
    return totals == {str(len(group))}
