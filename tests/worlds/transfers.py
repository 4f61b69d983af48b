"""A host with transfers on it, and keys and values that a test can tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ebbtide.ports import Expired, Imported, KvData, Miss, Transfer
from ebbtide.wire import KvKey, KvTicket


class Hands:
    """A clock whose hands a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.sleep_now(seconds)

    def sleep_now(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Host:
    """`start(name, epoch)`: a process begins."""

    clock: Hands
    start: Callable[[str, int], Transfer]


def key(n: int = 7, *, policy: str = "p", prefix: str = "x", layout: str = "l") -> KvKey:
    return KvKey(policy, prefix, n, layout)


def blocks(kv: KvKey, size: int = 1000) -> KvData:
    """`size` bytes that no other key has."""
    seed = str(kv).encode()
    return KvData(kv, memoryview((seed * (size // len(seed) + 1))[:size]))


async def fetch(
    reader: Transfer, ticket: KvTicket, wanted: KvKey | None = None
) -> Imported | Miss | Expired:
    return await reader.pull(ticket, wanted=wanted or ticket.key, seconds=5.0)
