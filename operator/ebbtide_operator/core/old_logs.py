"""Whose log files are still needed on one machine (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ebbtide.ports import Resource
from ebbtide_operator.core.retention import ending


def needed(jobs: Iterable[Resource], pods: Iterable[Resource]) -> Callable[[str, str], bool]:
    """Whether a pod, by namespace and name, is there, or belongs to a job that is not over.

    Names of a job's pods begin with the job's. A job whose name begins with that of another keeps
    its files a little longer than it must.
    """
    here = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
    running = {(job.metadata.namespace, job.metadata.name) for job in jobs if ending(job) is None}

    def is_needed(namespace: str, pod: str) -> bool:
        if (namespace, pod) in here:
            return True
        return any(space == namespace and pod.startswith(f"{job}-") for space, job in running)

    return is_needed
