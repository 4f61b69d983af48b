"""What all jobs of one operator share: where the servers are, and how pods are made (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

INTERRUPTION_TAINTS = (
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "kubernetes.azure.com/scheduledevent",
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "node.kubernetes.io/out-of-service",
)
"""Those of the clouds' notice handlers, Karpenter and the cluster autoscaler."""

TOPOLOGY = ("kubernetes.io/hostname", "rlhf.ebbtide.dev/domain", "topology.kubernetes.io/zone")
"""Node, topology domain, zone: the levels by which the planner orders actors."""


class NodePool(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a pool of `spec.*.pool` means to the scheduler; the values are Kubernetes' own.

    `resources`: what one pod asks for and is limited to, such as {"nvidia.com/gpu": "1"} or an RDMA
    device. `claims`: devices by dynamic resource allocation, as names of claim templates by the
    names that the pod gives them.
    """

    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Mapping[str, Any], ...] = ()
    resources: Mapping[str, str] = {}
    claims: Mapping[str, str] = {}
    runtime_class: str = ""


class Mount(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A claim of the jobs' namespace that every pod of a job has at `path`."""

    claim: str
    path: str
    read_only: bool = False


class Sandbox(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What pods that run programs of answers get, so that they can make cells (docs/reward.md).

    `seccomp_profile`, `app_armor_profile`: profiles on the nodes (type Localhost). `unisolated`:
    the administrator lets programs run without a cell where none can be made.
    """

    seccomp_profile: str = ""
    app_armor_profile: str = ""
    runtime_class: str = ""
    unisolated: bool = False

    @property
    def there(self) -> bool:
        """Whether such jobs are taken at all."""
        return bool(self.seccomp_profile or self.runtime_class or self.unisolated)


class KubeSite(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How pods are made on Kubernetes.

    `resources`, `priority_classes` and `queue_priorities` (Kueue's own classes) go by role. A pool that is not listed asks for nothing. `shm_mib`: shared memory of roles that compute.
    """

    image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    pools: Mapping[str, NodePool] = {}
    resources: Mapping[str, Mapping[str, str]] = {}
    priority_classes: Mapping[str, str] = {}
    queue_priorities: Mapping[str, str] = {}
    interruption_taints: tuple[str, ...] = INTERRUPTION_TAINTS
    """Keys of taints that say that a node is about to go; none: nodes are not looked at."""
    topology: tuple[str, ...] = TOPOLOGY
    """Labels of nodes that are near each other, the nearest first: pods that compute prefer to be
    near their learner. None: they stand anywhere."""
    sandbox: Sandbox = Sandbox()
    volumes: Mapping[str, Mount] = {}
    """What every pod mounts, by name: a store that is a folder, an environment of programs."""
    health_port: int = 8080
    run_as_user: int = 10001
    shm_mib: int = 1024


def overridden(site: KubeSite, runtime: Mapping[str, Any]) -> KubeSite:
    """The site as a ClusterRLHFRuntime says: its words, and by name its pools and roles.

    Raises msgspec.ValidationError where the runtime is not one.
    """
    own = msgspec.to_builtins(site)
    for name, value in runtime.items():
        if isinstance(value, Mapping):
            own[name] = {**own.get(name, {}), **value}
        elif value:
            own[name] = value
    return msgspec.convert(own, KubeSite)


class Site(msgspec.Struct, frozen=True):
    """`env`: variables of every pod; `role_env`, `secret_env`: more of them by role.

    `rendezvous`: where the ranks of an attempt meet, with {uid}, {attempt}, {pod} of rank 0 and
    {peers}, the service by which it is found. `audit`: file to which an actor logs what was
    settled, with {pod}; empty: none. `kubernetes`: set where pods are Kubernetes'.
    `prices`: by pool, the fields of spec.prices but its name, in `currency`.
    """

    env: Mapping[str, str] = {}
    role_env: Mapping[str, Mapping[str, str]] = {}
    secret_env: Mapping[str, Mapping[str, str]] = {}
    rendezvous: str = "tcp://{pod}.{peers}:29500"
    audit: str = ""
    restart_limit: int = 30
    """Restarts of one role in a row without progress before the job fails."""
    usage_seconds: float = 10.0
    """How often the held time of a living pod is written."""
    kubernetes: KubeSite | None = None
    prices: Mapping[str, Mapping[str, float | str | None]] = {}
    currency: str = "USD"
