"""Keys and values of cut samples, held for whoever goes on with them (pure): protocol.md 6.

A sample goes running -> cut -> holding -> released. What is held keeps a leaving actor here.
"""

from __future__ import annotations

from ebbtide.wire import Dispatch, KvTicket


class Holding:
    """Tickets by the dispatch that was cut, each until it is read, void or past its time."""

    def __init__(self) -> None:
        self._tickets: dict[Dispatch, tuple[KvTicket, float]] = {}

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Whose KV is still held."""
        return tuple(self._tickets)

    def add(self, dispatch: Dispatch, ticket: KvTicket, now: float) -> None:
        """Hold it from `now` on, for as long as the ticket says."""
        self._tickets[dispatch] = (ticket, now + ticket.expires_in)

    def keep(self, open_: frozenset[bytes], now: float) -> None:
        """Forget what is not among the `open_` exports any more, or past its time."""
        self._tickets = {
            dispatch: (ticket, until)
            for dispatch, (ticket, until) in self._tickets.items()
            if ticket.opaque in open_ and now < until
        }

    def expire(self, now: float) -> None:
        """Forget what is past its time, whatever the transfer says or does not say."""
        self.keep(frozenset(ticket.opaque for ticket, _ in self._tickets.values()), now)

    def void(self, dispatch: Dispatch) -> KvTicket | None:
        """Nobody will go on with it: the ticket to be released, if it is held."""
        ticket, _ = self._tickets.pop(dispatch, (None, 0.0))
        return ticket
