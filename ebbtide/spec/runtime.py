"""ClusterRLHFRuntime: how pods are made on a cluster, which is its administrators' to say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ebbtide.models import Model
from ebbtide.spec.base import Name

_Word = Annotated[str, Field(max_length=253)]
_Words = Annotated[dict[str, str], Field(max_length=64)]
_Key = Annotated[str, Field(max_length=63)]


class NodePoolSpec(Model):
    """What a pool that jobs name means to the scheduler; the values are Kubernetes' own."""

    node_selector: _Words = Field(default_factory=dict, description="Labels of its nodes.")
    tolerations: tuple[dict[str, Any], ...] = Field(
        (), max_length=32, description="Taints that its pods bear with."
    )
    resources: _Words = Field(
        default_factory=dict,
        description="What one pod asks for and is limited to: nvidia.com/gpu, an RDMA device.",
    )
    claims: _Words = Field(
        default_factory=dict,
        description="Devices by dynamic resource allocation: claim templates by the pod's name.",
    )
    runtime_class: _Word = Field("", description="RuntimeClass of its pods.")


class ClusterRLHFRuntimeSpec(Model):
    """Overrides what the operator was started with, for jobs that name this runtime."""

    image: Annotated[str, Field(max_length=512)] = Field("", description="Image of all roles.")
    image_pull_secrets: tuple[_Word, ...] = Field(
        (), max_length=16, description="Secrets that the image is pulled with."
    )
    pools: dict[_Key, NodePoolSpec] = Field(
        default_factory=dict, max_length=64, description="Node pools by the name that jobs give."
    )
    resources: dict[_Key, _Words] = Field(
        default_factory=dict, max_length=8, description="What pods ask for, by role."
    )
    priority_classes: dict[_Key, _Word] = Field(
        default_factory=dict, max_length=8, description="Kubernetes' priority classes by role."
    )
    queue_priorities: dict[_Key, _Word] = Field(
        default_factory=dict, max_length=8, description="Kueue's priority classes by role."
    )


class RuntimeRef(Model):
    """Which runtime a job is made with."""

    name: Name = Field(description="Of the ClusterRLHFRuntime.")
