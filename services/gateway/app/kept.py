"""Lines of a pod: those of the cluster while it has them, else those that were kept."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import msgspec

from ebbtide import paths
from ebbtide.errors import NotFound, Refused, Temporary
from ebbtide.ports import Blobs, Cluster
from services.gateway.core.lines import PodRole, gap, joined, numbered

_OVERLAP = 2
"""Parts that a pod's last lines may reach into."""


class Lines:
    """Logs of the jobs of one namespace."""

    def __init__(self, *, cluster: Cluster, blobs: Blobs, namespace: str) -> None:
        self._cluster, self._blobs, self._namespace = cluster, blobs, namespace

    async def last(self, uid: str, source: PodRole, tail: int) -> list[bytes]:
        """The last `tail` lines; a pod that has written nothing yet has none."""
        found = deque([raw async for raw in self.follow(uid, source, tail, follow=False)], tail)
        return list(found)

    async def follow(
        self, uid: str, source: PodRole, tail: int | None = None, *, follow: bool = True
    ) -> AsyncIterator[bytes]:
        """The last `tail` lines or all, then those that come while the pod lives.

        Where the cluster has no log any more, or cannot be asked (a lost node), what is kept.
        """
        any_yet = False
        try:
            async for raw in self._cluster.logs(self._namespace, source.pod, tail, follow):
                any_yet = True
                yield raw
        except (NotFound, Refused, Temporary) as error:
            if any_yet:
                raise
            async for raw in self._kept(uid, source, tail):
                any_yet = True
                yield raw
            if not any_yet and isinstance(error, Temporary):
                yield _unread(error)

    async def _kept(self, uid: str, source: PodRole, tail: int | None) -> AsyncIterator[bytes]:
        found = await self._blobs.list(paths.pod_logs(uid, source.role, source.pod))
        parts = numbered(found)
        before = dict(zip(parts, [-1, *parts], strict=False))
        early, late = list(parts)[:-_OVERLAP], list(parts)[-_OVERLAP:]
        last = [raw for n in late for raw in await self._part(parts[n], gap(before[n], n))]
        farewell = paths.log_tail(uid, source.role, source.pod)
        if farewell in found:
            last = joined(last, await self._part(farewell))
        if tail is None or len(last) < tail:
            for n in early:
                for raw in await self._part(parts[n], gap(before[n], n)):
                    yield raw
        for raw in last:
            yield raw

    async def _part(self, path: str, left_out: bytes = b"") -> list[bytes]:
        """Its lines; none if retention has just taken it away."""
        try:
            lines = (await self._blobs.get(path)).splitlines()
        except NotFound:
            return []
        return [left_out, *lines] if left_out else lines


def _unread(error: Temporary) -> bytes:
    words = {"level": "warning", "event": "this log cannot be read now", "why": str(error)}
    return msgspec.json.encode(words)
