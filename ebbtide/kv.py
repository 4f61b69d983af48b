"""Names of KV: what it is the keys and values of (protocol.md 6; docs/formats.md)."""

from __future__ import annotations

from ebbtide import wire
from ebbtide.wire import KvKey, PolicyRef

_TOKEN_BYTES = 4


def kv_key(policy: PolicyRef, text: bytes, n_tokens: int, layout: str) -> KvKey:
    """The name of the KV of the first `n_tokens` of `text` (packed tokens) under `policy`."""
    assert 0 <= n_tokens * _TOKEN_BYTES <= len(text)
    prefix = wire.digest(text[: n_tokens * _TOKEN_BYTES])
    return KvKey(policy.digest, prefix, n_tokens, layout)
