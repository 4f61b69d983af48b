"""What values of the chart share, and the small parts that several of them have (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ebbtide.models import Model

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
SecretName = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$")]
Variables = Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
Texts = Mapping[str, str]
Free = Mapping[str, Any]
"""Kubernetes' own form, checked by the API server."""
Level = Literal["debug", "info", "warning", "error"]
Pull = Literal["Always", "IfNotPresent", "Never"]
Role = Literal["planner", "prefill", "decode", "reward", "learner"]
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class Image(Model):
    """One image; a digest is what is pulled, whatever the tag says."""

    repository: str = Field(min_length=1, description="Its name below images.registry.")
    tag: str = Field("", description="Empty: the version of the chart's app.")
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$", description="Wins over the tag.")


class Resources(Model):
    """What a container asks for and is limited to."""

    requests: Texts = Field(default_factory=dict, description="Such as cpu: 100m.")
    limits: Texts = Field(default_factory=dict, description="Such as memory: 512Mi.")


def asked(cpu: str, memory: str, limit: str = "") -> Resources:
    """Requests, and a limit of memory alone: a limit of CPU would only slow things down."""
    return Resources(requests={"cpu": cpu, "memory": memory}, limits={"memory": limit or memory})


class Placement(Model):
    """Where pods of a component go; the forms are Kubernetes' own."""

    node_selector: Texts = Field(default_factory=dict, description="Labels of nodes.")
    tolerations: tuple[Free, ...] = Field((), description="Taints that do not matter.")
    affinity: Free = Field(default_factory=dict, description="Beside the spread over nodes.")
    priority_class_name: str = Field("", description="A PriorityClass that exists.")
    annotations: Texts = Field(default_factory=dict, description="Of the pods.")
    labels: Texts = Field(default_factory=dict, description="More labels of the pods.")


class Switch(Model):
    """An object that can be left out; `labels` are what the collector selects by."""

    enabled: bool = Field(False, description="Whether it is made.")
    labels: Texts = Field(default_factory=dict, description="Beside monitoring.labels.")


class Key(Model):
    """One key of a Secret that exists."""

    name: SecretName = Field("", description="The Secret.")
    key: str = Field("", description="Its key.")
