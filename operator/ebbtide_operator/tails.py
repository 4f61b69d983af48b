"""Keeps the last lines of pods that failed: what a process that died could not write any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ebbtide import labels, paths
from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.ports import Blobs, Cluster
from ebbtide_operator.lease import Lease
from ebbtide_operator.podspec import PodView
from ebbtide_operator.worklist import JobKey

LINES = 200
BYTES = 64 << 10
"""The last so many of them."""
SECONDS = 5.0
"""Longest wait for one pod's lines: no job's pass waits for a lost node."""
TRIES = 3


class Tails:
    """Remembers of whom it has them, as long as their pods are there."""

    def __init__(self, *, cluster: Cluster, blobs: Blobs, lease: Lease, log: Log) -> None:
        self._cluster, self._blobs, self._lease, self._log = cluster, blobs, lease, log
        self._tried: dict[JobKey, dict[str, int]] = {}

    async def save(self, job: JobKey, pods: Sequence[PodView]) -> None:
        """Keep the last lines of those of a job's pods that have failed since the last look."""
        before = self._tried.pop(job, {})
        tried = {pod.uid: before[pod.uid] for pod in pods if pod.uid in before}
        fresh = [pod for pod in pods if _failed(pod) and tried.get(pod.uid, 0) < TRIES]
        kept = await asyncio.gather(*map(self._keep, fresh))
        for pod, done in zip(fresh, kept, strict=True):
            tried[pod.uid] = TRIES if done else tried.get(pod.uid, 0) + 1
        if tried:
            self._tried[job] = tried

    async def _keep(self, pod: PodView) -> bool:
        """Whether there is nothing left to try; a pod's lines are worth no more than a few tries."""
        try:
            async with asyncio.timeout(SECONDS):
                lines = await self._read(pod)
                if lines:
                    self._lease.check()
                    await self._blobs.put(_path(pod), lines)
        except (EbbtideError, TimeoutError) as error:
            self._log.debug("last lines are not kept", pod=pod.name, why=str(error))
            return False
        return True

    async def _read(self, pod: PodView) -> bytes:
        namespace = pod.resource.metadata.namespace
        found = [raw async for raw in self._cluster.logs(namespace, pod.name, LINES, False)]
        whole = b"\n".join(found)
        if len(whole) <= BYTES:
            return whole
        return whole[-BYTES:].partition(b"\n")[2]


def _failed(pod: PodView) -> bool:
    return pod.status.phase == "Failed" and bool(pod.status.started_at)


def _path(pod: PodView) -> str:
    return paths.log_tail(pod.label(labels.JOB_UID), pod.label(labels.ROLE), pod.name)
