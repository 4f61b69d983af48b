"""Clock, blob store, broker and hot store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from ebbtide.wire import Journal, JournalRef, Ref


class Clock(Protocol):
    """Seconds. `now` is monotonic and orders events; `wall` is Unix time, for people only."""

    def now(self) -> float: ...

    def wall(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Stored(msgspec.Struct, frozen=True):
    """One object of the blob store. `at`: Unix seconds of its last write."""

    path: str
    size: int
    at: float


class Blobs(Protocol):
    """The blob store: whole objects under slash-separated paths."""

    async def put(self, path: str, data: bytes) -> Ref:
        """Write or overwrite; the object is never seen half-written."""
        ...

    async def put_all(self, path: str, parts: Sequence[bytes]) -> list[Ref]:
        """Write `parts` as one object; each of the refs, which only `fetch` takes, names one."""
        ...

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write unless the path exists: exactly one of many concurrent callers gets True."""
        ...

    async def put_file(self, path: str, source: Path) -> Ref:
        """Upload a local file (weights, checkpoint shards)."""
        ...

    async def get(self, path: str) -> bytes:
        """Read whole; raises NotFound."""
        ...

    async def fetch(self, ref: Ref) -> bytes:
        """Read and verify against `ref.digest`; raises NotFound or Corrupt."""
        ...

    async def local(self, ref: Ref) -> Path:
        """A local file with the content of `ref`: the object itself on disk, or a cached copy."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Paths under `prefix`, sorted."""
        ...

    async def described(self, prefix: str) -> Sequence[Stored]:
        """What `list` gives, with sizes and times."""
        ...

    async def delete(self, path: str) -> None:
        """Remove; a missing path is not an error."""
        ...


class Delivery(Protocol):
    """One message of a durable consumer. Unacknowledged messages are delivered again."""

    data: bytes
    subject: str
    redelivered: bool

    async def ack(self) -> None: ...

    async def nak(self, delay: float = 0.0) -> None: ...

    async def in_progress(self) -> None: ...


class Consumer(Protocol):
    """A durable pull consumer."""

    async def fetch(self, batch: int, timeout: float) -> Sequence[Delivery]:
        """Up to `batch` deliveries; empty after `timeout` seconds without any.

        A lost broker is waited for, and one that came back empty is furnished again. Raises
        Fenced once another holder replaced this one.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge many at once (pipelined)."""
        ...

    async def trim(self) -> None:
        """Drop from the stream what this consumer has acknowledged without a gap."""
        ...

    async def close(self) -> None:
        """Hand back what was delivered and not acknowledged, at once; the durable stays."""
        ...


Handler = Callable[[bytes], Awaitable[bytes]]


class FactMessage(msgspec.Struct, frozen=True):
    """A durable message; a second one with the same `dedup_id` is absorbed by the stream."""

    subject: str
    data: bytes
    dedup_id: str


class Bus(Protocol):
    """The broker. Commands are request/reply, facts are durable, beats are lossy."""

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now.

        For readiness, and for waits that must not run out while nobody can answer.
        """
        ...

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes:
        """Ask; raises DeadlineExceeded after `timeout` seconds, or at once if nobody serves."""
        ...

    def serve(
        self, subject: str, handler: Handler, at_once: int = 1
    ) -> AbstractAsyncContextManager[None]:
        """Answer requests in order while open; what the handler raises ends the context.

        With `at_once` so many are handled together, each answered when it is done.
        """
        ...

    async def publish_fact(self, subject: str, data: bytes, dedup_id: str) -> None:
        """Publish durably; returns once the stream has it, raises Temporary if it has not."""
        ...

    async def publish_facts(self, facts: Sequence[FactMessage]) -> None:
        """Publish many at once (pipelined); raises Temporary unless the stream has them all."""
        ...

    async def consume(
        self, stream: str, durable: str, subject: str, replaces: str = ""
    ) -> Consumer:
        """Open (or make) the durable pull consumer `durable` on `subject` of `stream`.

        Holders of one durable share the work. With `replaces`, the prefix of a line of durables
        (`streams.holders`), the new one begins where the last had everything acknowledged, so
        that what a dead holder left comes again at once, and the earlier ones are removed.
        Raises Fenced if one with a greater name exists.
        """
        ...

    async def beat(self, subject: str, data: bytes) -> None:
        """Publish without guarantee; never blocks on a lost connection."""
        ...

    def beats(self, subject: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Hear beats on `subject` (wildcards allowed) while the context is open."""
        ...


class Hot(Protocol):
    """Hot, reconstructible state (Valkey). Losing all of it costs time, never correctness."""

    async def append(self, chunks: Sequence[tuple[JournalRef, Journal]]) -> None:
        """Append journal chunks in one round trip; `JournalRef.n_tokens` is the new watermark."""
        ...

    async def journal(self, ref: JournalRef) -> Sequence[Journal]:
        """Chunks covering exactly tokens [0, ref.n_tokens); raises NotFound if any is missing."""
        ...

    async def forget(self, refs: Sequence[JournalRef]) -> None:
        """Drop journals that nobody needs any more."""
        ...

    async def put(self, key: str, data: bytes, ttl: float) -> None:
        """Set a small value that expires after `ttl` seconds."""
        ...

    async def get(self, key: str) -> bytes | None: ...
