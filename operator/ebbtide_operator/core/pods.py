"""Pod objects of a job: names, labels, environment (pure).

Names are functions of (job, role, attempt, number), so making one twice is a conflict and never a
second pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ebbtide import labels
from ebbtide.ports import Meta, Owner, Resource
from ebbtide.spec import API_VERSION, RLHFJobSpec, RoleSpec
from ebbtide_operator.core.queueing import queue_annotations, queue_labels
from ebbtide_operator.core.site import Site
from ebbtide_operator.podspec import USAGE_FINALIZER, PodSpec

PLANNER, LEARNER, DECODE, REWARD = "planner", "learner", "decode", "reward"
PREFILL = "prefill"
ROLES = (PLANNER, LEARNER, PREFILL, DECODE, REWARD)
INDEX = labels.INDEX
"""Label: rank of a learner, number of any other pod."""
POOL = f"{labels.GROUP}/pool"
"""Label: the node pool whose price applies."""

STOP_GRACE = 5.0
"""Seconds for pods of a job that is over: nothing is left to hand over."""
BROKEN_GRACE = 2.0
"""Seconds for what is left of a broken attempt: it cannot save anything."""
_GRACE = {PLANNER: 300.0, LEARNER: 30.0, PREFILL: 30.0, REWARD: 10.0}
_UID_PART = 8
_SHORTER = 2.0
"""The process ends itself this much before it would be killed."""


class Cast(msgspec.Struct, frozen=True):
    """A job and where it runs: all that its pods are made of."""

    job: Resource
    spec: RLHFJobSpec
    site: Site
    runtime: Mapping[str, Any] = {}
    """What the job's ClusterRLHFRuntime says; `site` has it already."""

    @property
    def name(self) -> str:
        """Of the job."""
        return self.job.metadata.name

    @property
    def uid(self) -> str:
        """Of the job."""
        return self.job.metadata.uid

    @property
    def scores(self) -> bool:
        """Whether there are answers to sample and to score."""
        return self.spec.samples


def owner(resource: Resource) -> Owner:
    """The owner reference to `resource`."""
    return Owner(resource.kind, resource.metadata.name, resource.metadata.uid)


def peers(cast: Cast) -> str:
    """Name of the service by which the ranks of the job find each other."""
    return f"{cast.name}-peers-{cast.uid[:_UID_PART]}"


def account(cast: Cast) -> str:
    """Name of the planner's service account, and of its role."""
    return f"{cast.name}-{PLANNER}-{cast.uid[:_UID_PART]}"


def pool_object(cast: Cast) -> Resource:
    """The job's DecodePool; the planner is the one who changes its spec."""
    meta = Meta(
        name=cast.name,
        namespace=cast.job.metadata.namespace,
        labels={labels.JOB: cast.name, labels.JOB_UID: cast.uid},
        owner_references=(owner(cast.job),),
    )
    spec = {"job": cast.name, "replicas": cast.spec.decode.replicas}
    return Resource(api_version=API_VERSION, kind="DecodePool", metadata=meta, spec=spec)


def planner_pod(cast: Cast, attempt: int, serial: int) -> Resource:
    """The planner that starts as number `serial` in this attempt."""
    return _pod(cast, PLANNER, f"{attempt}-{serial}", attempt, serial)


def learner_pod(cast: Cast, attempt: int, rank: int) -> Resource:
    """Rank `rank` of the attempt's gang."""
    lead = f"{cast.name}-{LEARNER}-{attempt}-0"
    place = cast.site.rendezvous.format(uid=cast.uid, attempt=attempt, pod=lead, peers=peers(cast))
    more = {"EBBTIDE_RANK": str(rank), "EBBTIDE_RENDEZVOUS": place}
    return _pod(cast, LEARNER, f"{attempt}-{rank}", attempt, rank, more=more)


def reward_pod(cast: Cast, attempt: int, index: int) -> Resource:
    """Scorer number `index`; it stays over attempts."""
    return _pod(cast, REWARD, str(index), attempt, index)


def prefill_pod(cast: Cast, attempt: int, index: int) -> Resource:
    """The prefill service that starts as number `index`; it stays over attempts."""
    return _pod(cast, PREFILL, str(index), attempt, index)


def decode_pod(cast: Cast, pool: Resource, attempt: int, index: int) -> Resource:
    """Actor number `index`; it stays over attempts and belongs to the pool."""
    name = f"{cast.name}-{DECODE}-{index}"
    audit = cast.site.audit.format(pod=name)
    more = {"EBBTIDE_AUDIT_PATH": audit} if audit else {}
    return _pod(cast, DECODE, str(index), attempt, index, more=more, owned_by=pool)


def _pod(
    cast: Cast,
    role: str,
    suffix: str,
    attempt: int,
    index: int,
    *,
    more: Mapping[str, str] | None = None,
    owned_by: Resource | None = None,
) -> Resource:
    name = f"{cast.name}-{role}-{suffix}"
    meta = Meta(
        name=name,
        namespace=cast.job.metadata.namespace,
        labels=_added(cast, role, "labels")
        | _labels(cast, role, attempt, index)
        | _queued(cast, role, attempt),
        annotations=_added(cast, role, "annotations") | _annotations(cast, role, attempt),
        owner_references=(owner(owned_by or cast.job),),
        finalizers=(USAGE_FINALIZER,),
    )
    grace = _grace(cast, role)
    on_kubernetes = cast.site.kubernetes is not None
    spec = PodSpec(
        command=("python", "-m", f"services.{role}"),
        env=_env(cast, role, name, attempt, grace) | dict(more or {}),
        secret_env=dict(cast.site.secret_env.get(role, {})),
        termination_grace_period_seconds=grace,
        warm=role in (LEARNER, PREFILL) or (role == DECODE and cast.spec.decode.engine == "torch"),
        interpreter="vllm" if role == DECODE and cast.spec.decode.engine == "vllm" else "",
        account=account(cast) if on_kubernetes and role == PLANNER else "",
        peers=peers(cast) if on_kubernetes and role == LEARNER else "",
        cells=role == REWARD and cast.spec.programs is not None,
        template=_template(cast, role).get("spec") or {},
        runtime=cast.runtime,
    )
    return Resource(api_version="v1", kind="Pod", metadata=meta, spec=msgspec.to_builtins(spec))


def _labels(cast: Cast, role: str, attempt: int, index: int) -> dict[str, str]:
    return {
        labels.JOB: cast.name,
        labels.JOB_UID: cast.uid,
        labels.ROLE: role,
        labels.ATTEMPT: str(attempt),
        INDEX: str(index),
        POOL: _node_pool(cast.spec, role),
    }


def _queued(cast: Cast, role: str, attempt: int) -> dict[str, str]:
    site, gang = cast.site.kubernetes, _gang(cast, role, attempt)
    return queue_labels(cast.job, role, gang=gang, site=site) if site else {}


def _annotations(cast: Cast, role: str, attempt: int) -> dict[str, str]:
    if cast.site.kubernetes is None:
        return {}
    gang = _gang(cast, role, attempt)
    return queue_annotations(cast.job, gang=gang, ranks=cast.spec.learner.ranks)


def _template(cast: Cast, role: str) -> Mapping[str, Any]:
    """The job's own additions to the pods of the role; nothing where pods are no containers."""
    found = _part(cast.spec, role).pod_template
    return found if found and cast.site.kubernetes else {}


def _added(cast: Cast, role: str, field: str) -> dict[str, str]:
    meta = _template(cast, role).get("metadata") or {}
    return dict(meta.get(field) or {})


def _gang(cast: Cast, role: str, attempt: int) -> str:
    return f"{cast.name}-{LEARNER}-{attempt}" if role == LEARNER else ""


def _node_pool(spec: RLHFJobSpec, role: str) -> str:
    return _part(spec, role).pool


def _part(spec: RLHFJobSpec, role: str) -> RoleSpec:
    parts: dict[str, RoleSpec] = {
        PLANNER: spec.planner,
        LEARNER: spec.learner,
        PREFILL: spec.prefill,
        DECODE: spec.decode,
        REWARD: spec.reward or spec.planner,
    }
    return parts[role]


def _grace(cast: Cast, role: str) -> float:
    return _GRACE.get(role, cast.spec.decode.drain_seconds)


def _env(cast: Cast, role: str, pod: str, attempt: int, grace: float) -> dict[str, str]:
    return {
        **cast.site.env,
        **cast.site.role_env.get(role, {}),
        "EBBTIDE_POD": pod,
        "EBBTIDE_NAMESPACE": cast.job.metadata.namespace,
        "EBBTIDE_JOB": cast.name,
        "EBBTIDE_JOB_UID": cast.uid,
        "EBBTIDE_ATTEMPT": str(attempt),
        "EBBTIDE_SPEC": cast.spec.model_dump_json(by_alias=True, exclude_unset=True),
        "EBBTIDE_GRACE_SECONDS": str(max(0.5, grace - _SHORTER)),
    }
