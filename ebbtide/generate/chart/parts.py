"""Values of the control plane, the servers and their storage (pure)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ebbtide.generate.chart.base import (
    Image,
    Level,
    Placement,
    Pull,
    Resources,
    SecretName,
    Texts,
    Variables,
    asked,
)
from ebbtide.models import Model


class Images(Model):
    """Where programs come from."""

    registry: str = Field("", description="Put before every repository; empty: as they are.")
    pull_policy: Pull = Field("IfNotPresent", description="Of all of them.")
    pull_secrets: tuple[str, ...] = Field((), description="Names; jobs' namespaces need them too.")
    control: Image = Field(
        default_factory=lambda: Image(repository="ebbtide/control"),
        description="Operator and gateway: target `control` of the Dockerfile.",
    )
    compute: Image = Field(
        default_factory=lambda: Image(repository="ebbtide/compute"),
        description="Pods of jobs: target `compute` of the Dockerfile.",
    )
    nats: Image = Field(
        default_factory=lambda: Image(repository="docker.io/library/nats", tag="2.12-alpine"),
        description="The broker.",
    )
    valkey: Image = Field(
        default_factory=lambda: Image(repository="docker.io/valkey/valkey", tag="9.0-alpine"),
        description="The hot store.",
    )


class Operator(Placement):
    """Makes pods of jobs. One holds the lease; a second stands by."""

    replicas: int = Field(1, ge=1, le=3, description="All but one stand by.")
    log_level: Level = Field("info", description="Lines below are not written.")
    lease_seconds: int = Field(15, ge=1, le=600, description="How long a dead one holds the lease.")
    resources: Resources = Field(
        default_factory=lambda: asked("100m", "384Mi", "1Gi"), description="Of its container."
    )
    extra_env: Variables = Field(default_factory=dict, description="More variables.")


class Retention(Model):
    """What is kept of ended jobs; ledgers, reports, policies and checkpoints always are."""

    pod_log_mib: int = Field(
        16, ge=0, le=1024, description="Of one pod's log, its beginning and the newest; 0: nothing."
    )
    log_days: float = Field(
        30.0, ge=0, le=36_500, description="Logs go so long after the job's end; 0: never."
    )
    log_job_mib: int = Field(
        4096, ge=0, le=1 << 30, description="Beyond it the oldest logs of a job go; 0: no bound."
    )
    sample_days: float = Field(
        0.0, ge=0, le=36_500, description="Samples go so long after the job's end; 0: never."
    )
    sample_job_mib: int = Field(
        0, ge=0, le=1 << 30, description="Beyond it the oldest samples of a job go; 0: no bound."
    )
    grace_hours: float = Field(
        24.0, ge=1, le=87_600, description="Nothing goes so soon after the job's end."
    )


class Auth(Model):
    """Who is let in."""

    mode: Literal["kubernetes", "tokens", "none"] = Field(
        "kubernetes",
        description="kubernetes: whoever could do the same by kubectl. tokens: those in a list."
        " none: everybody, and only with gateway.insecure.",
    )
    audience: str = Field("", description="What tokens must be meant for; empty: the API server.")
    existing_secret: SecretName = Field(
        "", description="For tokens: a Secret whose key tokens.txt has lines `tenant:sha256`."
    )


class Service(Model):
    """How the gateway is reached."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        "ClusterIP", description="TLS ends in front of it: at an Ingress or a Gateway."
    )
    port: int = Field(80, ge=1, le=65535, description="Of the Service.")
    annotations: Texts = Field(default_factory=dict, description="For load balancers.")


class Gateway(Placement):
    """REST over the job object."""

    replicas: int = Field(2, ge=1, le=32, description="Spread over nodes; one may leave at a time.")
    log_level: Level = Field("info", description="Lines below are not written.")
    auth: Auth = Field(default_factory=lambda: Auth(), description="Who is let in.")
    insecure: bool = Field(False, description="Needed for auth.mode none: no caller is asked.")
    rate_per_second: float = Field(50.0, gt=0, le=1e6, description="Requests of one tenant.")
    service: Service = Field(default_factory=lambda: Service(), description="Its Service.")
    resources: Resources = Field(
        default_factory=lambda: asked("100m", "384Mi", "1Gi"), description="Of its container."
    )
    extra_env: Variables = Field(default_factory=dict, description="More variables.")


class Storage(Model):
    """Where the broker keeps its streams."""

    persistent: bool = Field(True, description="On a volume; else gone with the pod.")
    size: str = Field("8Gi", description="Of the volume.")
    class_name: str = Field("", description="StorageClass; empty: the cluster's default.")


class External(Model):
    """A server that exists."""

    url: str = Field("", description="Without credentials; several brokers by commas.")


class Nats(Placement):
    """The broker. What it holds can be made again: it is transport, not the record."""

    install: bool = Field(True, description="Else external.url says where one is.")
    replicas: Literal[1, 3] = Field(1, description="Three: streams have three copies.")
    copies: int = Field(0, ge=0, le=5, description="Of each stream; 0: as many as replicas.")
    sync_always: bool = Field(True, description="An acknowledged message is on the disk.")
    max_file_store: str = Field("6GB", description="Below storage.size: a full volume stops it.")
    storage: Storage = Field(default_factory=lambda: Storage(), description="Of each server.")
    external: External = Field(default_factory=lambda: External(), description="If not installed.")
    resources: Resources = Field(
        default_factory=lambda: asked("200m", "512Mi", "1Gi"), description="Of each server."
    )


class Valkey(Placement):
    """The hot store: a cache. Losing it costs work, never results."""

    install: bool = Field(True, description="Else external.url says where one is.")
    max_memory: str = Field("1gb", description="Above it the values that expire first go.")
    external: External = Field(default_factory=lambda: External(), description="If not installed.")
    resources: Resources = Field(
        default_factory=lambda: asked("100m", "1280Mi", "1536Mi"), description="Above max_memory."
    )


class Credentials(Model):
    """Passwords of broker and hot store, one Secret with the same name in every namespace.

    Keys: nats-planner, nats-prefill, nats-decode, nats-reward, nats-learner, nats-route, valkey.
    """

    create: bool = Field(
        True, description="Made once, kept over upgrades and uninstalling. Not where charts are"
        " rendered without the cluster (GitOps): every rendering would make others.",
    )  # fmt: skip
    existing_secret: SecretName = Field(
        "", description="With create false: in the release's and in every jobs' namespace."
    )


class Volume(Model):
    """A folder instead of an object store."""

    existing_claim: SecretName = Field(
        "", description="ReadWriteMany, mounted where url says; one in every jobs' namespace too."
    )


class ObjectStore(Model):
    """Where ledgers, rollouts, policies and checkpoints lie."""

    url: str = Field(
        "", description="s3://bucket/prefix, gs://..., az://..., or file:///path on a volume."
    )
    env: Variables = Field(
        default_factory=dict, description="Such as AWS_REGION, AWS_ENDPOINT_URL."
    )
    existing_secret: SecretName = Field(
        "", description="In the release's and in every jobs' namespace; empty: the node's identity."
    )
    secret_keys: Variables = Field(
        default_factory=lambda: {
            "AWS_ACCESS_KEY_ID": "access-key-id",
            "AWS_SECRET_ACCESS_KEY": "secret-access-key",
        },
        description="Variable and its key in existingSecret.",
    )
    volume: Volume = Field(default_factory=lambda: Volume(), description="For file:///path.")
