"""Pod objects as Kubernetes' own pods (pure).

Every pod passes the restricted Pod Security Standard: no root, no privileges, a read-only root
file system with room in /tmp. It holds no token of the API server unless its role speaks to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from ebbtide import labels
from ebbtide.ports import Resource
from ebbtide_operator.core.nearness import near_learner
from ebbtide_operator.core.overlay import overlay
from ebbtide_operator.core.pods import DECODE, LEARNER, POOL, PREFILL
from ebbtide_operator.core.site import KubeSite, Mount, NodePool, Sandbox, overridden
from ebbtide_operator.podspec import PodSpec

_COMPUTING = (LEARNER, DECODE, PREFILL)
_PROBE_SECONDS = 5
_START_PROBES = 360
"""Half an hour to load weights: a probe that does not answer yet is no failure."""
_ALIVE_PROBES = 12


class Renderer:
    """Makes the `spec` of pods; `site`: image, pools, priorities."""

    def __init__(self, site: KubeSite) -> None:
        self._site = site

    def __call__(self, pod: Resource) -> Mapping[str, Any]:
        """The API's spec of the Pod object."""
        spec = msgspec.convert(pod.spec, PodSpec)
        if spec.runtime:
            plain = msgspec.to_builtins(msgspec.structs.replace(spec, runtime={}))
            there = Renderer(overridden(self._site, spec.runtime))
            return there(msgspec.structs.replace(pod, spec=plain))
        role = pod.metadata.labels.get(labels.ROLE, "")
        pool = self._site.pools.get(pod.metadata.labels.get(POOL, ""), NodePool())
        made = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": max(1, round(spec.termination_grace_period_seconds)),
            "enableServiceLinks": False,
            "securityContext": _of_pod(self._site.run_as_user),
            "containers": [self._container(spec, role, pool)],
            "volumes": self._volumes(role),
            **_named(spec, pod.metadata.name),
            **self._scheduling(role, pool),
            **self._nearness(pod.metadata.labels),
            **(_kernel(self._site.sandbox) if spec.cells else {}),
        }
        return overlay(made, spec.template)

    def _container(self, spec: PodSpec, role: str, pool: NodePool) -> dict[str, Any]:
        asked = {**self._site.resources.get(role, {}), **pool.resources}
        return {
            "name": "main",
            "image": self._site.image,
            "imagePullPolicy": self._site.image_pull_policy,
            "command": list(spec.command),
            "env": self._env(spec),
            "securityContext": _CONFINED | (_profiles(self._site.sandbox) if spec.cells else {}),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": self._mounts(role),
            **_resources(asked, pool.claims),
            **(self._probes() if spec.probe else {}),
        }

    def _env(self, spec: PodSpec) -> list[dict[str, Any]]:
        plain = {"HOME": "/tmp", **spec.env}  # noqa: S108 - the one place that can be written to
        if spec.probe:
            plain |= {
                "EBBTIDE_HEALTH_HOST": "0.0.0.0",  # noqa: S104 - the kubelet probes from outside
                "EBBTIDE_HEALTH_PORT": str(self._site.health_port),
            }
        if spec.cells and self._site.sandbox.unisolated:
            plain["EBBTIDE_SANDBOX"] = "if-possible"
        if spec.account:
            plain["EBBTIDE_CLUSTER"] = "kubernetes"
        secret = [
            {"name": name, "valueFrom": {"secretKeyRef": _reference(where)}}
            for name, where in spec.secret_env.items()
        ]
        return [{"name": name, "value": value} for name, value in plain.items()] + secret

    def _probes(self) -> dict[str, Any]:
        probe = partial(_probe, self._site.health_port)
        return {
            "ports": [{"name": "health", "containerPort": self._site.health_port}],
            "startupProbe": probe("/healthz", _START_PROBES),
            "livenessProbe": probe("/healthz", _ALIVE_PROBES),
            "readinessProbe": probe("/readyz", 1),
        }

    def _volumes(self, role: str) -> list[dict[str, Any]]:
        room: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
        if role in _COMPUTING:
            memory = {"medium": "Memory", "sizeLimit": f"{self._site.shm_mib}Mi"}
            room.append({"name": "shm", "emptyDir": memory})
        return room + [_claimed(name, one) for name, one in self._site.volumes.items()]

    def _mounts(self, role: str) -> list[dict[str, Any]]:
        shared = [
            {"name": name, "mountPath": one.path, "readOnly": one.read_only}
            for name, one in self._site.volumes.items()
        ]
        return [*_mounts(role), *shared]

    def _scheduling(self, role: str, pool: NodePool) -> dict[str, Any]:
        secrets = [{"name": name} for name in self._site.image_pull_secrets]
        wanted = {
            "nodeSelector": dict(pool.node_selector),
            "tolerations": [dict(one) for one in pool.tolerations],
            "runtimeClassName": pool.runtime_class,
            "priorityClassName": self._site.priority_classes.get(role, ""),
            "imagePullSecrets": secrets,
            "resourceClaims": [
                {"name": name, "resourceClaimTemplateName": template}
                for name, template in pool.claims.items()
            ],
        }
        return {name: value for name, value in wanted.items() if value}

    def _nearness(self, marks: Mapping[str, str]) -> dict[str, Any]:
        near = near_learner(marks, self._site.topology)
        return {"affinity": near} if near and marks.get(labels.ROLE) in _COMPUTING else {}


def _resources(asked: Mapping[str, str], claims: Mapping[str, str]) -> dict[str, Any]:
    """What a container has: counted resources, and devices that its pod claims."""
    parts: dict[str, Any] = {"requests": asked, "limits": asked} if asked else {}
    parts |= {"claims": [{"name": name} for name in claims]} if claims else {}
    return {"resources": parts} if parts else {}


def _named(spec: PodSpec, name: str) -> dict[str, Any]:
    """Its account, its token or none, and the name by which peers find it."""
    found: dict[str, Any] = {"automountServiceAccountToken": bool(spec.account)}
    if spec.account:
        found["serviceAccountName"] = spec.account
    if spec.peers:
        found |= {"hostname": name, "subdomain": spec.peers}
    return found


def _of_pod(user: int) -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


_CONFINED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _kernel(sandbox: Sandbox) -> dict[str, str]:
    """A runtime class with a kernel of its own goes before the pool's."""
    return {"runtimeClassName": sandbox.runtime_class} if sandbox.runtime_class else {}


def _profiles(sandbox: Sandbox) -> dict[str, Any]:
    """What the node lets the container do; the restricted standard takes profiles of the node."""
    named = {
        "seccompProfile": sandbox.seccomp_profile,
        "appArmorProfile": sandbox.app_armor_profile,
    }
    return {
        kind: {"type": "Localhost", "localhostProfile": name}
        for kind, name in named.items()
        if name
    }


def _mounts(role: str) -> list[dict[str, str]]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - inside the container
    return mounts + ([{"name": "shm", "mountPath": "/dev/shm"}] if role in _COMPUTING else [])  # noqa: S108


def _claimed(name: str, mount: Mount) -> dict[str, Any]:
    """Read-only at its source too: else the kubelet gives every file of it to the pod's group."""
    claim = {"claimName": mount.claim, "readOnly": mount.read_only}
    return {"name": name, "persistentVolumeClaim": claim}


def _probe(port: int, path: str, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": _PROBE_SECONDS,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _reference(where: str) -> dict[str, str]:
    """`secret/key`; a secret without a key has its value under `value`."""
    name, _, key = where.partition("/")
    return {"name": name, "key": key or "value"}
