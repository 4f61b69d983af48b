"""What the services need from the world, as protocols; adapters and fakes implement them.

Every call that waits takes a deadline or is bounded by its caller with `asyncio.timeout`.
Each port has a fake in `ebbtide.testing` and one contract test that runs on fake and real.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ebbtide.wire import Assign, Dispatch, EngineStats, Journal, JournalRef, PolicyRef, Ref, Span


class Clock(Protocol):
    """Seconds. `now` is monotonic and orders events; `wall` is Unix time, for people only."""

    def now(self) -> float: ...

    def wall(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Blobs(Protocol):
    """The blob store: whole objects under slash-separated paths."""

    async def put(self, path: str, data: bytes) -> Ref:
        """Write or overwrite; the object is never seen half-written."""
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
        """Whether the broker can be reached now (for readiness, not for decisions)."""
        ...

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes:
        """Ask; raises DeadlineExceeded after `timeout` seconds, or at once if nobody serves."""
        ...

    def serve(self, subject: str, handler: Handler) -> AbstractAsyncContextManager[None]:
        """Answer requests in order while open; what the handler raises ends the context."""
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


# --- engine (protocol.md 13) -------------------------------------------------------------------


class EngineCaps(msgspec.Struct, frozen=True):
    """What an engine can do. `kv_layout` names the binary layout of its KV blocks."""

    positional_noise: bool
    kv_export: bool
    block_size: int
    kv_layout: str
    sleeps: bool
    reference: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """What a sample had when it was cut: packed tokens and log-probabilities, spans."""

    tokens: bytes
    logprobs: bytes
    spans: tuple[Span, ...]


class Admission(msgspec.Struct, frozen=True):
    """One sample as an engine takes it. `prompt` is packed token ids."""

    assign: Assign
    prompt: bytes
    resumed: Resumed | None = None


class Loaded(msgspec.Struct, frozen=True):
    """The engine holds this policy; `probe_logprobs` are packed, for the index's probe."""

    policy: PolicyRef
    probe_logprobs: bytes


class NewTokens(msgspec.Struct, frozen=True):
    """Tokens [start, start + n) of a running dispatch, with all that belongs to them."""

    dispatch: Dispatch
    chunk: Journal


class EngineFinished(msgspec.Struct, frozen=True):
    """The response is complete. finish: stop | length. Times in seconds."""

    dispatch: Dispatch
    tokens: bytes
    logprobs: bytes
    spans: tuple[Span, ...]
    finish: str
    queued: float
    prefill: float
    decode: float


class EngineCut(msgspec.Struct, frozen=True):
    """The dispatch was cut; a dispatch that had finished answers EngineFinished instead."""

    dispatch: Dispatch
    tokens: bytes
    logprobs: bytes
    spans: tuple[Span, ...]


class EngineFailed(msgspec.Struct, frozen=True):
    """The dispatch cannot go on. code: prompt | engine | policy."""

    dispatch: Dispatch
    code: str
    detail: str


EngineEvent = NewTokens | EngineFinished | EngineCut | EngineFailed


class Engine(Protocol):
    """Commands in, events out; the engine runs its own loop (a thread or a process).

    `submit` and `cut` return at once and are idempotent by dispatch. Every submitted dispatch
    ends in exactly one of EngineFinished, EngineCut, EngineFailed. `load` may be called only
    while nothing runs (synchronous mode). The engine stamps the PolicyRef, nobody else.
    """

    @property
    def caps(self) -> EngineCaps: ...

    async def load(self, policy: PolicyRef, index: Path) -> Loaded:
        """Read the publication whose index lies at `index`, its files beside it.

        Verifies all digests; raises Corrupt, and serves nothing, when one does not hold.
        """
        ...

    def submit(self, admission: Admission) -> None: ...

    def cut(self, dispatch: Dispatch) -> None: ...

    async def events(self, timeout: float) -> Sequence[EngineEvent]:
        """What happened since the last call, in order; waits up to `timeout` seconds."""
        ...

    def stats(self) -> EngineStats: ...

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def close(self) -> None: ...


# --- cluster (protocol.md 14) -------------------------------------------------------------------


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference; the owner's deletion deletes the object."""

    kind: str
    name: str
    uid: str


class Meta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Object metadata with the meaning that Kubernetes gives it. Times are RFC 3339."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: float | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()


class Resource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One object. `spec` and `status` are JSON values; `ebbtide.spec` has their models."""

    api_version: str
    kind: str
    metadata: Meta
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class Change(msgspec.Struct, frozen=True):
    """type: ADDED | MODIFIED | DELETED | BOOKMARK."""

    type: str
    resource: Resource


class Cluster(Protocol):
    """Objects with optimistic concurrency; Kubernetes API or the local object store.

    Raises NotFound, Conflict (exists, or stale resource_version), Refused (invalid),
    Temporary. Deleting an object with finalizers only marks it. Status and spec are written
    apart: `patch` never touches status, `patch_status` never touches the rest. Patches are
    JSON merge patches; with `resource_version` they fail on a concurrent change.
    """

    async def get(self, kind: str, namespace: str, name: str) -> Resource: ...

    async def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Resource], str]:
        """The objects and the resource version to watch from."""
        ...

    def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        """Changes after `since`; raises Conflict("expired") when history does not reach it."""
        ...

    async def create(self, resource: Resource) -> Resource: ...

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource: ...

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str | None = None,
    ) -> Resource: ...

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str | None = None,
        grace: float | None = None,
    ) -> None:
        """Delete, or mark while finalizers remain.

        `uid` makes it fail on another object of that name. `grace` (seconds) replaces a pod's own
        terminationGracePeriodSeconds; a later call may shorten it.
        """
        ...

    def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """Lines of a pod's log, which outlive the pod."""
        ...
