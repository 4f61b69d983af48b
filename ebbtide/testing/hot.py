"""A hot store in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide import journals
from ebbtide.errors import NotFound, Temporary
from ebbtide.ports import Clock
from ebbtide.wire import Journal, JournalRef


class FakeHot:
    """Implements `ebbtide.ports.Hot`. `up = False` makes every call fail with Temporary."""

    def __init__(self, *, clock: Clock, journal_ttl: float = 3600.0) -> None:
        self._clock = clock
        self._ttl = journal_ttl
        self._journals: dict[str, tuple[float, list[Journal]]] = {}
        self._values: dict[str, tuple[float, bytes]] = {}
        self.up = True

    def flush(self) -> None:
        """Lose everything, as FLUSHALL does."""
        self._journals.clear()
        self._values.clear()

    async def append(self, chunks: Sequence[tuple[JournalRef, Journal]]) -> None:
        self._check()
        for ref, chunk in chunks:
            held = self._held(journals.name(ref))
            expiry = self._clock.now() + self._ttl
            self._journals[journals.name(ref)] = (expiry, [*held, chunk])

    async def journal(self, ref: JournalRef) -> Sequence[Journal]:
        self._check()
        held = self._held(journals.name(ref))
        if not held:
            raise NotFound(f"no journal {journals.name(ref)}")
        return journals.cover(held, ref.n_tokens)

    async def forget(self, refs: Sequence[JournalRef]) -> None:
        self._check()
        for ref in refs:
            self._journals.pop(journals.name(ref), None)

    async def put(self, key: str, data: bytes, ttl: float) -> None:
        self._check()
        self._values[key] = (self._clock.now() + ttl, data)

    async def get(self, key: str) -> bytes | None:
        self._check()
        expiry, data = self._values.get(key, (0.0, b""))
        return data if expiry > self._clock.now() else None

    def _held(self, name: str) -> list[Journal]:
        expiry, held = self._journals.get(name, (0.0, []))
        return held if expiry > self._clock.now() else []

    def _check(self) -> None:
        if not self.up:
            raise Temporary("hot store is down")
