"""Held time: how long each pod of a job existed, as the operator writes it (protocol.md 11, pure).

One JSON file per pod (`paths.usage`), written when the pod starts, refreshed while it runs and
closed when it is gone. The planner's Spent records say what the time was used for; what they do
not explain stays unattributed.
"""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """One pod's life. Times are Unix seconds; `ended_at` is None while it lives.

    `seen_at`: when the operator last saw it alive, which bounds what a dead operator missed.
    """

    job_uid: str
    role: str
    pod: str
    uid: str
    pool: str
    attempt: int
    started_at: float
    seen_at: float
    ended_at: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds held, as far as it is known."""
        return max(
            0.0, (self.seen_at if self.ended_at is None else self.ended_at) - self.started_at
        )


def encode(usage: Usage) -> bytes:
    """The file's content."""
    return msgspec.json.encode(usage)


def decode(data: bytes) -> Usage:
    """Inverse of `encode`."""
    return msgspec.json.decode(data, type=Usage)
