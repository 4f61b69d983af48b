"""Deletes what no actor and no checkpoint needs any more (rank 0)."""

from __future__ import annotations

from collections.abc import Collection

from ebbtide import paths
from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.ports import Blobs
from ebbtide.wire import Manifest, Saved, decode
from services.learner.core.retention import policy_folder, prunable


class Janitor:
    """Knows this attempt's publications; what earlier attempts left goes at the first sweep."""

    def __init__(self, *, blobs: Blobs, uid: str, attempt: int, keep: int, log: Log) -> None:
        self._blobs = blobs
        self._uid = uid
        self._attempt = attempt
        self._keep = keep
        self._log = log
        self._swept = False
        self._published: set[int] = set()
        self._dropped: set[int] = set()

    def published(self, version: int) -> None:
        """Remember a publication of this attempt."""
        self._published.add(version)

    async def sweep(self, current: int, saved: Collection[Saved]) -> None:
        """Delete old publications, and shards whose checkpoint the planner has dropped.

        What cannot be deleted now is tried again at the next sweep; training does not wait.
        """
        try:
            committed = await self._committed()
            await self._drop_shards(committed, saved)
            await self._drop_policies(current, committed, saved)
            if not self._swept:
                await self._drop_earlier(committed)
                self._swept = True
        except EbbtideError as error:
            self._log.warning("old files not deleted yet", why=str(error))

    async def _committed(self) -> dict[str, Manifest]:
        """Manifests of the whole job by path."""
        listed = await self._blobs.list(f"{paths.job(self._uid)}attempts/")
        names = [path for path in listed if "/manifests/" in path]
        return {name: decode(await self._blobs.get(name), Manifest) for name in names}

    async def _drop_shards(self, committed: dict[str, Manifest], saved: Collection[Saved]) -> None:
        for old in sorted(saved, key=lambda s: s.step)[:-1]:
            kept = paths.manifest(self._uid, self._attempt, old.step) in committed
            if kept or old.step in self._dropped:
                continue
            for ref in old.shards:
                await self._blobs.delete(ref.path)
            self._dropped.add(old.step)

    async def _drop_policies(
        self, current: int, committed: dict[str, Manifest], saved: Collection[Saved]
    ) -> None:
        named = {m.policy.n for m in committed.values() if m.attempt == self._attempt}
        # The newest shards may be without their manifest still.
        newest = sorted(saved, key=lambda s: s.step)[-1:]
        named |= {s.policy.n for s in newest}
        gone = prunable(self._published, current=current, keep=self._keep, named=named)
        for version in gone:
            await self._drop_folder(paths.policy(self._uid, self._attempt, version))
            self._published.discard(version)

    async def _drop_earlier(self, committed: dict[str, Manifest]) -> None:
        """Publications and shards of earlier attempts that no manifest names."""
        kept = {policy_folder(m.index.path) for m in committed.values()}
        used = {ref.path for m in committed.values() for ref in m.learner_refs}
        mine = paths.attempt(self._uid, self._attempt)
        for path in await self._blobs.list(f"{paths.job(self._uid)}attempts/"):
            folder = policy_folder(path)
            loose = folder not in kept if folder else "/checkpoints/" in path and path not in used
            if loose and path < mine:
                await self._blobs.delete(path)

    async def _drop_folder(self, folder: str) -> None:
        # The index first: without it the rest is no publication.
        for path in sorted(await self._blobs.list(folder), key=lambda p: "index.msgpack" not in p):
            await self._blobs.delete(path)
