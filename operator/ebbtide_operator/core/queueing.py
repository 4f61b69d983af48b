"""What Kueue must know of a job's pods: their queue, their priority, which belong together (pure).

A job with the label `kueue.x-k8s.io/queue-name` is queued: the ranks of an attempt are one group,
admitted together or not at all; every other pod is admitted by itself, so that elastic actors
never hold up the gang, and go first where their priority class is the lower one.
"""

from __future__ import annotations

from ebbtide.ports import Resource
from ebbtide_operator.core.site import KubeSite

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_KEPT = {"karpenter.sh/do-not-disrupt": "true"}
"""No pod of a job is moved only to save a node: a pod that is alone on its node would go first."""


def queue_labels(job: Resource, role: str, *, gang: str, site: KubeSite) -> dict[str, str]:
    """Labels of a pod; `gang`: name of the group that it belongs to, or empty."""
    queue = job.metadata.labels.get(QUEUE, "")
    if not queue:
        return {}
    priority = site.queue_priorities.get(role) or job.metadata.labels.get(PRIORITY, "")
    found = {QUEUE: queue, PRIORITY: priority, GROUP: gang}
    return {name: value for name, value in found.items() if value}


def queue_annotations(job: Resource, *, gang: str, ranks: int) -> dict[str, str]:
    """Annotations of a pod; a group says how many pods it has."""
    grouped = gang and QUEUE in job.metadata.labels
    return {**_KEPT, **({TOTAL: str(ranks)} if grouped else {})}
