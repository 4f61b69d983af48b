"""What a ticket allows, and when no longer (pure): protocol.md 6.

A lease goes granted -> reading -> consumed, and from either of the first two to expired or
released; it never goes back, so what has ended is never read. The stages are also the endings of
an export's file name in shared memory, where a move is one rename.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ebbtide.wire import KvKey, KvTicket

SHARE = 3
"""A reader gives up after this part of the time for which the holder holds."""


class Stage(StrEnum):
    """Where a lease stands."""

    GRANTED = "granted"
    READING = "reading"
    CONSUMED = "consumed"
    EXPIRED = "expired"
    RELEASED = "released"


MOVES = {
    Stage.GRANTED: {Stage.READING, Stage.EXPIRED, Stage.RELEASED},
    Stage.READING: {Stage.CONSUMED, Stage.EXPIRED, Stage.RELEASED},
}


@dataclass(frozen=True)
class Lease:
    """A holder's promise. `until` is on the holder's clock, in seconds."""

    ticket: KvTicket
    until: float
    stage: Stage = Stage.GRANTED

    @property
    def open(self) -> bool:
        """Whether it may still be read."""
        return self.stage in MOVES

    def to(self, stage: Stage, now: float) -> Lease | None:
        """The lease after a move; None if it may not be made, or comes too late."""
        late = now >= self.until and stage in (Stage.READING, Stage.CONSUMED)
        if late or stage not in MOVES.get(self.stage, ()):
            return None
        return replace(self, stage=stage)

    def at(self, now: float) -> Lease:
        """The lease when it is `now`: an open one expires at its time."""
        over = self.open and now >= self.until
        return replace(self, stage=Stage.EXPIRED) if over else self


def patience(ticket: KvTicket, seconds: float) -> float:
    """How long a reader may take that would wait for `seconds`."""
    return min(seconds, ticket.expires_in / SHARE)


def unfit(shown: KvTicket, held: KvTicket, *, reader: str, wanted: KvKey) -> str:
    """Why `reader`, who shows a ticket and wants `wanted`, may not use what is held; or empty."""
    if reason := unwanted(shown.key, wanted):
        return reason
    if shown.holder != held.holder or shown.holder_epoch != held.holder_epoch:
        return "the ticket is of another holder or of an earlier start of it"
    if reader != held.reader or shown.reader != held.reader:
        return f"it is held for {held.reader}"
    return "" if shown == held else "it is not what the ticket says"


def unwanted(offered: KvKey, wanted: KvKey) -> str:
    """How `offered` differs from `wanted`; empty if it does not."""
    for what in ("policy_digest", "layout", "n_tokens", "prefix_hash"):
        if getattr(offered, what) != getattr(wanted, what):
            return f"another {what.replace('_', ' ')} than wanted"
    return ""
