"""One operator writes at a time: a Lease object, renewed while held, checked before every write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide import labels
from ebbtide.errors import Conflict, NotFound, Temporary
from ebbtide.objects import rfc3339
from ebbtide.ports import Clock, Cluster, Meta, Resource

NAME = labels.LEASE


class Lost(Temporary):
    """Another operator holds the lease, or ours could not be renewed in time."""


class Lease:
    """`seconds`: how long others wait after the last renewal before they take over.

    `scrape`: host and port of the holder's /metrics, for who holds the lease to tell.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        clock: Clock,
        holder: str,
        seconds: float,
        namespace: str,
        scrape: str = "",
    ) -> None:
        self._told = {labels.SCRAPE: scrape}
        self._cluster, self._clock = cluster, clock
        self._holder, self._seconds, self._namespace = holder, seconds, namespace
        self._until = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)

    def check(self) -> None:
        """Raise Lost unless the lease is certainly ours at this moment."""
        if self._clock.now() >= self._until:
            raise Lost("the operator's lease is not held")

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while not await self._try_or_wait():
            await self._clock.sleep(self._seconds / 10)

    async def keep(self) -> None:
        """Renew for ever; raises Lost once somebody else has it, or nobody answered for too long."""
        while True:
            await self._clock.sleep(self._seconds / 3)
            while (held := await self._try_or_wait()) is None:
                self.check()
                await self._clock.sleep(self._seconds / 30)
            if not held:
                raise Lost("another operator has taken the lease")

    async def release(self) -> None:
        """Let the next operator start at once."""
        self._until = float("-inf")
        found = await self._get()
        if found is not None and found.spec.get("holderIdentity") == self._holder:
            await self._write(found, {"holderIdentity": ""})

    async def _try_or_wait(self) -> bool | None:
        """Whether it is ours; None while nobody answers."""
        try:
            return await self._try()
        except Temporary:
            return None

    async def _try(self) -> bool:
        asked = self._clock.now()
        try:
            held = await self._claim()
        except Conflict:
            held = False
        if held:
            # Counted from before the write, so others never think it shorter than we do.
            self._until = asked + self._seconds * 2 / 3
        return held

    async def _claim(self) -> bool:
        renewal = {"holderIdentity": self._holder, "renewTime": rfc3339(self._clock.wall())}
        found = await self._get()
        if found is None:
            meta = Meta(name=NAME, namespace=self._namespace, annotations=self._told)
            spec = renewal | {"leaseDurationSeconds": self._seconds}
            kind = Resource("coordination.k8s.io/v1", "Lease", meta, spec=spec)
            await self._cluster.create(kind)
            return True
        if not self._may_take(found):
            return False
        await self._write(found, renewal)
        return True

    def _may_take(self, found: Resource) -> bool:
        """Ours, nobody's, or not renewed for its whole time while we looked on.

        Two machines' clocks may differ by more than a lease lasts, so the holder's word for when it
        renewed is compared with its last word and never with our own clock.
        """
        spec = found.spec
        holder = spec.get("holderIdentity")
        if holder in ("", None, self._holder):
            return True
        word, now = f"{holder} {spec.get('renewTime')}", self._clock.now()
        if word != self._seen[0]:
            self._seen = (word, now)
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds", self._seconds))

    async def _get(self) -> Resource | None:
        try:
            return await self._cluster.get("Lease", self._namespace, NAME)
        except NotFound:
            return None

    async def _write(self, found: Resource, spec: Mapping[str, Any]) -> None:
        version = found.metadata.resource_version
        patch = {"metadata": {"annotations": self._told}, "spec": spec}
        await self._cluster.patch("Lease", self._namespace, NAME, patch, version)
