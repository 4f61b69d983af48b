"""Reads the operator's usage files; those of ended pods are read once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from ebbtide import paths, usage
from ebbtide.ports import Blobs
from ebbtide.usage import Usage

_KEPT = 128


class HeldTime:
    """By job uid."""

    def __init__(self, *, blobs: Blobs) -> None:
        self._blobs = blobs
        self._ended: OrderedDict[str, dict[str, Usage]] = OrderedDict()

    async def of(self, uid: str) -> list[Usage]:
        """Every pod of the job, in order of its file's name."""
        ended = self._ended.setdefault(uid, {})
        self._ended.move_to_end(uid)
        while len(self._ended) > _KEPT:
            self._ended.popitem(last=False)
        found = await self._blobs.list(paths.usages(uid))
        fresh = [path for path in found if path not in ended]
        read = dict(zip(fresh, await asyncio.gather(*map(self._read, fresh)), strict=True))
        ended.update({path: one for path, one in read.items() if one.ended_at is not None})
        return [read.get(path) or ended[path] for path in found]

    async def _read(self, path: str) -> Usage:
        return usage.decode(await self._blobs.get(path))
