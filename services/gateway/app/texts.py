"""Turns token ids back into text, with the tokenizer that the job's policies carry."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ebbtide import paths
from ebbtide.data.sources import local_path
from ebbtide.errors import NotFound, Refused
from ebbtide.ports import Blobs, Resource
from ebbtide.wire import PolicyRef

_FILE = "tokenizer.json"
_KEPT = 16

Decode = Callable[[Sequence[int]], str]


class Tokenizers:
    """Decoders by job uid. Imports the tokenizers package at the first use."""

    def __init__(self, *, blobs: Blobs) -> None:
        self._blobs = blobs
        self._kept: OrderedDict[str, Decode] = OrderedDict()

    async def decoder(self, job: Resource, policies: Iterable[PolicyRef]) -> Decode:
        """The job's decoder; without a tokenizer, ids are shown as they are."""
        uid = job.metadata.uid
        if uid not in self._kept:
            data = await self._published(uid, policies) or await _named(job)
            if data is None:
                return _ids
            self._kept[uid] = await asyncio.to_thread(_load, data)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[uid]

    async def _published(self, uid: str, policies: Iterable[PolicyRef]) -> bytes | None:
        folders = [paths.policy(uid, policy.attempt, policy.n) for policy in policies]
        for folder in (*folders, paths.base(uid)):
            try:
                return await self._blobs.get(folder + _FILE)
            except NotFound:
                continue  # retention keeps the newest publications alone
        return None


async def _named(job: Resource) -> bytes | None:
    model = job.spec.get("model", {})
    uri = model.get("tokenizerUri") or model.get("uri") or ""
    try:
        file = local_path(uri) / _FILE
    except Refused:
        return None
    return await asyncio.to_thread(_read, file)


def _read(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _load(data: bytes) -> Decode:
    from tokenizers import Tokenizer  # noqa: PLC0415 - only samples need it

    tokenizer = Tokenizer.from_buffer(data)

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    return decode


def _ids(ids: Sequence[int]) -> str:
    return " ".join(str(number) for number in ids)
