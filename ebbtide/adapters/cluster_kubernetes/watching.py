"""A watch that goes on: one stream a kind, taken up again where it broke off.

The server ends a watch after its time limit, and sends a bookmark about once a minute, so a
stream that says nothing for longer than that is dead, whatever its connection looks like.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from ebbtide.adapters.cluster_kubernetes.answers import EXPIRED, Status, error_of
from ebbtide.adapters.cluster_kubernetes.api import Api
from ebbtide.adapters.cluster_kubernetes.forms import Forms, read_event
from ebbtide.errors import Conflict, EbbtideError, Temporary
from ebbtide.ports import Change, Clock, Meta, Resource

SILENCE_SECONDS = 90.0
"""A stream without a byte for so long is broken off; bookmarks come about once a minute."""
LIMIT_SECONDS = 300
"""The server ends a stream after so long, or up to twice that: not all at the same moment."""
PATIENCE_SECONDS = 30.0
"""A watch that cannot be taken up again for so long fails."""
_PAUSES = (0.05, 5.0)
_QUEUE = 1024
_GONE = 410


class Watching:
    """One call of `Cluster.watch`."""

    def __init__(
        self,
        *,
        api: Api,
        forms: Forms,
        clock: Clock,
        namespace: str | None,
        silence: float = SILENCE_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._api, self._forms, self._clock = api, forms, clock
        self._namespace, self._silence, self._patience = namespace, silence, patience
        self._queue: asyncio.Queue[Change | EbbtideError] = asyncio.Queue(_QUEUE)

    async def changes(self, kinds: Sequence[str], since: str) -> AsyncIterator[Change]:
        """Changes of every kind as they come; in order within a kind."""
        tasks = [
            asyncio.create_task(self._kind(kind, since), name=f"watch-{kind}") for kind in kinds
        ]
        try:
            while True:
                told = await self._queue.get()
                if isinstance(told, EbbtideError):
                    raise told
                yield told
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def _kind(self, kind: str, since: str) -> None:
        """Follow one kind until it cannot be followed; what is then wrong is told."""
        try:
            await self._follow(kind, since)
        except EbbtideError as error:
            await self._queue.put(error)

    async def _follow(self, kind: str, since: str) -> NoReturn:
        position, heard_at, pause = since, self._clock.now(), _PAUSES[0]
        while True:
            try:
                async for change in self._stream(kind, position):
                    position = change.resource.metadata.resource_version
                    heard_at, pause = self._clock.now(), _PAUSES[0]
                    await self._queue.put(change)
                heard_at = self._clock.now()  # it ended as agreed
            except Temporary:
                if self._clock.now() - heard_at > self._patience + self._silence:
                    raise
            await self._clock.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])

    async def _stream(self, kind: str, since: str) -> AsyncIterator[Change]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": round(LIMIT_SECONDS * (1 + random.random())),  # noqa: S311 - no secret
        }
        path = self._forms.kind(kind).path(self._namespace)
        what = f"watch of {kind}"
        async with self._api.stream(path, what=what, query=query, silence=self._silence) as lines:
            async for line in lines:
                if line:
                    yield self._change(kind, line)

    def _change(self, kind: str, line: bytes) -> Change:
        try:
            event = read_event(line)
            if event.type == "ERROR":
                raise _failure(event.object)
            return Change(event.type, self._resource(kind, event.type, event.object))
        except msgspec.MsgspecError as error:
            raise Temporary(f"watch of {kind}: half a line or no event: {error}") from error

    def _resource(self, kind: str, change: str, data: msgspec.Raw) -> Resource:
        if change != "BOOKMARK":
            return self._forms.read(kind, data)
        version = msgspec.json.decode(data, type=_Mark).metadata.resource_version
        return Resource("v1", "", Meta(name="", namespace="", resource_version=version))


class _MarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Mark(msgspec.Struct, frozen=True):
    metadata: _MarkMeta


def _failure(data: msgspec.Raw) -> EbbtideError:
    status = msgspec.json.decode(data, type=Status)
    return Conflict(EXPIRED) if status.code == _GONE else error_of(status, "watch")
