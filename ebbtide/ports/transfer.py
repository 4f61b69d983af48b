"""Transfer of KV between processes (protocol.md 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ebbtide.wire import KvKey, KvTicket


class KvData(msgspec.Struct, frozen=True):
    """Keys and values of the first `key.n_tokens` tokens of a text, as `key.layout` says."""

    key: KvKey
    data: memoryview


class Imported(msgspec.Struct, frozen=True):
    """All of it, verified; it stays as it is for as long as it is used."""

    kv: KvData


class Miss(msgspec.Struct, frozen=True):
    """Not to be had by this ticket, or not what was wanted: compute."""

    why: str


class Expired(msgspec.Struct, frozen=True):
    """Time was up, before or during the read: compute."""

    why: str


class Transfer(Protocol):
    """KV from one process to another by tickets, never through the broker, never in part."""

    async def export(self, kv: KvData, *, reader: str, seconds: float) -> KvTicket:
        """Hold a copy for `reader`, for so long on this holder's clock; raises Temporary."""
        ...

    async def pull(
        self, ticket: KvTicket, *, wanted: KvKey, seconds: float
    ) -> Imported | Miss | Expired:
        """Read it if it is exactly `wanted`, within `seconds` and a third of what it is held.

        The lease is looked at again after the read.
        """
        ...

    def release(self, ticket: KvTicket) -> None:
        """Nobody will read this export of ours any more."""
        ...

    def held(self) -> Sequence[KvTicket]:
        """Own exports that may still be read; what was read or has expired is cleared away."""
        ...

    async def close(self) -> None:
        """Withdraw everything that is held."""
        ...
