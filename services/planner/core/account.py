"""What the planner records of its decision, beside the layout itself (pure)."""

from __future__ import annotations

import msgspec

from services.planner.core.planning.record import Decision


class Account(msgspec.Struct, frozen=True):
    """Kept as JSON in `Decided`, for people; `prefill` also for a planner that takes over.

    `together`: whether the samples of a group were kept on one actor. `profile`: where the times
    per token come from. `start_seconds`: what starting an actor was thought to take.
    `wake_seconds`: what waking one was. `other_seconds`: what the other phases usually take; None: not known yet.
    """

    decision: Decision
    prediction: str
    scaling: str
    together: bool
    profile: str
    start_seconds: float
    other_seconds: float | None
    wake_seconds: float = 0.0
    prefill: str = ""
    prefill_reason: str = ""


def dump(account: Account) -> bytes:
    """As JSON."""
    return msgspec.json.encode(account)


def load(data: bytes) -> Account:
    """What `dump` wrote."""
    return msgspec.json.decode(data, type=Account)
