"""Rights to keys and values of cut samples, until they go on (pure; protocol.md 6).

A ticket is worth something to one reader, for a while, and for samples of one policy. Without it
whoever goes on computes, so one in doubt is left out.
"""

from __future__ import annotations

from ebbtide.wire import KvTicket, PolicyRef

_SHARE = 1 / 3
"""Of the time that its holder gives: by then the reader has begun, however late this was heard."""


class Tickets:
    """By sample number; those of one step."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[KvTicket, float]] = {}

    def keep(self, sample: int, ticket: KvTicket, now: float) -> None:
        """The newest one counts."""
        self._held[sample] = (ticket, now + _SHARE * ticket.expires_in)

    def of(self, sample: int, actor: str, policy: PolicyRef, now: float) -> KvTicket | None:
        """What `actor` may read when it goes on with the sample from `policy`."""
        ticket, until = self._held.get(sample, (None, 0.0))
        if ticket is None or now >= until or ticket.reader != actor:
            return None
        return ticket if ticket.key.policy_digest == policy.digest else None

    def drop(self, sample: int) -> None:
        """Its tokens are lost: there is no text any more that the KV would be of."""
        self._held.pop(sample, None)

    def clear(self) -> None:
        """Another step begins."""
        self._held.clear()
