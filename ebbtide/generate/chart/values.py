"""The values of the chart, the one source of values.yaml and values.schema.json (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ebbtide.generate.chart.base import (
    Cidr,
    Free,
    Key,
    Namespace,
    Port,
    Role,
    SecretName,
    Switch,
    Texts,
)
from ebbtide.generate.chart.base import Variables as Env
from ebbtide.generate.chart.parts import (
    Credentials,
    Gateway,
    Images,
    Nats,
    ObjectStore,
    Operator,
    Retention,
    Valkey,
)
from ebbtide.models import Model
from ebbtide.spec.base import Name
from ebbtide.spec.roles import Capacity
from ebbtide.spec.runtime import ClusterRLHFRuntimeSpec


class Crds(Model):
    """The definitions of RLHFJob and DecodePool."""

    install: bool = Field(True, description="Install and upgrade them with the chart.")
    keep: bool = Field(True, description="Uninstalling leaves them, and so every job's record.")


class Rbac(Model):
    """Who may do what on the API server."""

    create: bool = Field(True, description="Make roles, bindings and the planner's policies.")
    scope: Literal["namespace", "cluster"] = Field(
        "namespace", description="Whether the operator looks after jobs.namespace or after all."
    )
    aggregate: bool = Field(
        True, description="Add jobs to Kubernetes' own roles view, edit and admin."
    )


class Pool(Model):
    """What a name in `spec.*.pool` of a job means; the values are Kubernetes' own."""

    node_selector: Texts = Field(default_factory=dict, description="Labels of its nodes.")
    tolerations: tuple[Free, ...] = Field((), description="Taints of its nodes.")
    resources: Texts = Field(
        default_factory=dict,
        description="Of one pod, any name: nvidia.com/gpu, rdma/hca_shared_devices_a,"
        " vpc.amazonaws.com/efa.",
    )
    runtime_class: str = Field("", description="A RuntimeClass that exists.")


class Price(Model):
    """What one member of a pool costs: a GPU, or a process without one."""

    per_hour: float = Field(ge=0, le=1e6, description="In jobs.currency, running, an hour.")
    parked_share: float = Field(
        1.0, ge=0, le=1, description="Share of it for an actor that sleeps."
    )
    capacity_type: Capacity | None = Field(
        None, description="How the provider sells the pool's nodes; unset: unknown."
    )


class Mount(Model):
    """A claim that every pod of a job has."""

    claim: SecretName = Field(min_length=1, description="In every jobs' namespace.")
    path: str = Field(pattern=r"^/.+$", description="Where it is mounted.")
    read_only: bool = Field(False, description="Nothing is written to it.")


class Installer(Model):
    """A DaemonSet that lays the profile on every node, as root and with the folder of the node."""

    enabled: bool = Field(False, description="Else the administrator lays it there.")
    namespace: Namespace = Field(
        "ebbtide-nodes", description="Made, with the privileged standard: for this alone."
    )
    folder: str = Field(
        "/var/lib/kubelet/seccomp", pattern=r"^/.+$", description="The kubelet's, on the node."
    )


class Sandbox(Model):
    """How pods make cells for programs of answers (docs/reward.md). All empty: such jobs are refused."""

    seccomp_profile: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*)?$",
        description="On every node below the kubelet's folder seccomp: files/cells.json of the"
        " chart, such as ebbtide/cells.json.",
    )
    app_armor_profile: str = Field(
        "", description="Loaded on every node, where AppArmor forbids containers to mount."
    )
    runtime_class: str = Field("", description="With a kernel of its own, such as gvisor or kata.")
    unisolated: bool = Field(
        False, description="Let programs run without a cell where none can be made."
    )
    installer: Installer = Field(
        default_factory=lambda: Installer(), description="Of the seccomp profile."
    )


class Jobs(Model):
    """Where jobs run and what their pods get."""

    namespace: Namespace = Field("ebbtide-jobs", description="Whose jobs the gateway serves.")
    create_namespace: bool = Field(True, description="Make it, with the restricted standard.")
    more_namespaces: tuple[Namespace, ...] = Field(
        (), description="Others where jobs may run; they exist, and rbac.scope is cluster."
    )
    pools: Mapping[str, Pool] = Field(default_factory=dict, description="By name.")
    runtimes: Mapping[Name, ClusterRLHFRuntimeSpec] = Field(
        default_factory=dict,
        description="ClusterRLHFRuntimes by name, for jobs that name one in runtimeRef.",
    )
    prices: Mapping[Name, Price] = Field(
        default_factory=dict,
        description="By pool; written into a job that has none for it when it is taken on.",
    )
    currency: str = Field(
        "USD",
        pattern=r"^[A-Z]{3}$",
        description="Of these prices; jobs that count in another are left as they are.",
    )
    resources: Mapping[Role, Texts] = Field(
        default_factory=dict, description="Of a pod by role: requests and limits alike."
    )
    priority_classes: Mapping[Role, str] = Field(
        default_factory=dict, description="PriorityClass by role."
    )
    queue_priorities: Mapping[Role, str] = Field(
        default_factory=dict, description="Kueue's WorkloadPriorityClass by role."
    )
    shm_mib: int = Field(1024, ge=64, le=1 << 20, description="Shared memory of compute pods.")
    run_as_user: int = Field(10001, ge=1, le=2**31 - 1, description="User of every pod of a job.")
    env: Env = Field(default_factory=dict, description="More variables of every pod.")
    sandbox: Sandbox = Field(
        default_factory=lambda: Sandbox(), description="For rewards of type code."
    )
    volumes: Mapping[str, Mount] = Field(
        default_factory=dict,
        description="Claims that every pod mounts, by name; the one of a file:// store is added.",
    )


class NetworkPolicy(Model):
    """Nothing is allowed but the flows that are needed."""

    enabled: bool = Field(True, description="Needs a network plugin that enforces them.")
    dns_namespace: Namespace = Field("kube-system", description="Where the cluster's DNS is.")
    api_server: tuple[Cidr, ...] = Field(
        ("0.0.0.0/0",), description="Addresses of the API server; narrow it to yours."
    )
    api_server_ports: tuple[Port, ...] = Field((443, 6443), description="Its ports.")
    object_store: tuple[Cidr, ...] = Field(
        ("0.0.0.0/0",), description="Addresses of the object store; narrow it to yours."
    )
    object_store_ports: tuple[Port, ...] = Field((443,), description="Its ports.")
    monitoring_namespace: Namespace = Field(
        "monitoring", description="Whose pods may read metrics."
    )
    gateway_from: tuple[Free, ...] = Field(
        (), description="Peers that may reach the gateway; empty: all. Who may do what is its own"
        " affair.",
    )  # fmt: skip
    job_egress: tuple[Free, ...] = Field(
        (), description="More rules for pods of jobs, such as a model hub."
    )


class JobFigures(Switch):
    """A ScrapeConfig of the gateway's /v1/metrics, which asks for a token."""

    token: Key = Field(
        default_factory=lambda: Key(), description="In the release's namespace; may list jobs."
    )


class Dashboards(Switch):
    """A ConfigMap for each."""

    labels: Texts = Field(
        default_factory=lambda: {"grafana_dashboard": "1"}, description="What Grafana selects by."
    )
    annotations: Texts = Field(default_factory=dict, description="Such as a folder of Grafana.")


class Monitoring(Model):
    """Objects of the Prometheus operator, and dashboards. NATS and Valkey have no exporter."""

    labels: Texts = Field(default_factory=dict, description="Of all, such as release: prometheus.")
    interval: str = Field("15s", pattern=r"^[0-9]+(ms|s|m)$", description="Between two scrapes.")
    service_monitor: Switch = Field(default_factory=lambda: Switch(), description="The gateway.")
    pod_monitor: Switch = Field(
        default_factory=lambda: Switch(), description="The operator, and pods of jobs."
    )
    job_figures: JobFigures = Field(
        default_factory=lambda: JobFigures(), description="Figures of jobs, drawn from what lasts."
    )
    rules: Switch = Field(default_factory=lambda: Switch(), description="Alerts and recordings.")
    runbooks: str = Field("", description="Put before a runbook's path in alerts.")
    dashboards: Dashboards = Field(
        default_factory=lambda: Dashboards(), description="Grafana's, one ConfigMap each."
    )


class Uninstall(Model):
    """What happens to jobs: without an operator nobody would take their finalizers off."""

    jobs: Literal["refuse", "delete"] = Field(
        "refuse", description="refuse: uninstalling fails while there are jobs. delete: ends them."
    )
    wait_seconds: int = Field(600, ge=1, le=86400, description="Longest wait for them to leave.")


class Tests(Model):
    """`helm test`."""

    enabled: bool = Field(True, description="A pod that asks gateway, broker and hot store.")


class Values(Model):
    """All of them."""

    name_override: str = Field("", max_length=40, description="Instead of the chart's name.")
    images: Images = Field(default_factory=lambda: Images(), description="Programs.")
    crds: Crds = Field(default_factory=lambda: Crds(), description="Definitions.")
    rbac: Rbac = Field(default_factory=lambda: Rbac(), description="Rights.")
    jobs: Jobs = Field(default_factory=lambda: Jobs(), description="Where and how jobs run.")
    operator: Operator = Field(default_factory=lambda: Operator(), description="Makes pods.")
    gateway: Gateway = Field(default_factory=lambda: Gateway(), description="REST.")
    nats: Nats = Field(default_factory=lambda: Nats(), description="The broker.")
    valkey: Valkey = Field(default_factory=lambda: Valkey(), description="The hot store.")
    credentials: Credentials = Field(
        default_factory=lambda: Credentials(), description="Passwords of both."
    )
    object_store: ObjectStore = Field(
        default_factory=lambda: ObjectStore(), description="What lasts; url is required."
    )
    retention: Retention = Field(
        default_factory=lambda: Retention(), description="What of that goes after a job's end."
    )
    network_policy: NetworkPolicy = Field(
        default_factory=lambda: NetworkPolicy(), description="Who may talk to whom."
    )
    monitoring: Monitoring = Field(
        default_factory=lambda: Monitoring(), description="Metrics, alerts, dashboards."
    )
    uninstall: Uninstall = Field(default_factory=lambda: Uninstall(), description="The end.")
    tests: Tests = Field(default_factory=lambda: Tests(), description="helm test.")
    extra_objects: tuple[Free, ...] = Field(
        (), description="Kubernetes objects of your own, as they are."
    )
