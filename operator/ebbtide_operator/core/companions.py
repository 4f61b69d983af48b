"""What a job's pods need beside themselves on Kubernetes: a name to meet at, and rights (pure).

The planner alone may speak to the API server, and only about its own job: it patches the pool
that it scales and the job's status, by name, and looks at pods. Names hold the job's uid, so a job
that takes the name of a deleted one never gets what is about to be collected with that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ebbtide import labels
from ebbtide.ports import Meta, Resource
from ebbtide.spec import GROUP
from ebbtide_operator.core.pods import LEARNER, Cast, account, owner, peers

_RBAC = "rbac.authorization.k8s.io"


def meeting(cast: Cast) -> tuple[Resource, ...]:
    """The headless service by which ranks find rank 0, also before they are ready."""
    if cast.site.kubernetes is None:
        return ()
    selector = {labels.JOB_UID: cast.uid, labels.ROLE: LEARNER}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return (_of_job(cast, "v1", "Service", peers(cast), spec),)


def access(cast: Cast) -> tuple[Resource, ...]:
    """The planner's service account and what it may do."""
    if cast.site.kubernetes is None:
        return ()
    name, version = account(cast), f"{_RBAC}/v1"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": cast.job.metadata.namespace}
    binding = {
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [subject],
    }
    return (
        _of_job(cast, "v1", "ServiceAccount", name, {"automountServiceAccountToken": False}),
        _of_job(cast, version, "Role", name, {"rules": list(_rules(cast.name))}),
        _of_job(cast, version, "RoleBinding", name, binding),
    )


def _rules(job: str) -> Sequence[Mapping[str, Any]]:
    return (
        _rule(GROUP, ["rlhfjobs"], ["get"], job),
        _rule(GROUP, ["rlhfjobs/status"], ["patch"], job),
        _rule(GROUP, ["decodepools"], ["get", "patch"], job),
        _rule("", ["pods"], ["list", "watch"]),
    )


def _rule(group: str, resources: list[str], verbs: list[str], name: str = "") -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule | ({"resourceNames": [name]} if name else {})


def _of_job(cast: Cast, version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Resource:
    meta = Meta(
        name=name,
        namespace=cast.job.metadata.namespace,
        labels={labels.JOB: cast.name, labels.JOB_UID: cast.uid},
        owner_references=(owner(cast.job),),
    )
    return Resource(api_version=version, kind=kind, metadata=meta, spec=spec)
