"""What computes samples (protocol.md 13)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ebbtide.ports.transfer import KvData
from ebbtide.wire import Assign, Dispatch, EngineStats, Journal, PolicyRef, Span


class EngineCaps(msgspec.Struct, frozen=True):
    """What an engine can do. `kv_layout` names the binary layout of its KV (docs/formats.md).

    It is empty until a policy is loaded. Prompts share KV by whole blocks of `block_size` tokens.
    """

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
    """One sample as an engine takes it. `prompt` is packed token ids.

    `kv` spares computing what it covers; KV of another text, policy or layout is not used.
    """

    assign: Assign
    prompt: bytes
    resumed: Resumed | None = None
    kv: KvData | None = None


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
    """The dispatch was cut; a dispatch that had finished answers EngineFinished instead.

    `kv`, if it was asked for and is there, covers at most all tokens but the last.
    """

    dispatch: Dispatch
    tokens: bytes
    logprobs: bytes
    spans: tuple[Span, ...]
    kv: KvData | None = None


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

    def cut(self, dispatch: Dispatch, *, export: bool = False) -> None: ...

    async def prefill(self, policy: PolicyRef, tokens: bytes) -> KvData:
        """KV of all `tokens` (packed) but the last, for samples that run elsewhere.

        Nothing is sampled. Raises Refused: no such policy, no export, or a text that cannot be.
        """
        ...

    async def events(self, timeout: float) -> Sequence[EngineEvent]:
        """What happened since the last call, in order; waits up to `timeout` seconds."""
        ...

    def stats(self) -> EngineStats: ...

    async def sleep(self) -> None:
        """Give up weights and KV; nothing is served until the next `load`, which wakes it.

        Raises Refused while anything runs or waits, and where `caps.sleeps` is False. Counters of
        `stats` go on from where they were.
        """
        ...

    async def close(self) -> None: ...
