"""A model of a transfer: what cut samples left for whoever goes on with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.wire import Assign, Dispatch, KvKey, KvTicket

if TYPE_CHECKING:
    from tests.unit.planner.world import World


class Exports:
    """`lease`: seconds that an export is held. Each is read once, while its holder lives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until: dict[bytes, float] = {}
        self.lease = 30.0
        self.granted = self.read = self.missed = 0

    def grant(self, holder: str, assign: Assign, tokens: int, reader: str) -> KvTicket:
        """Hold the KV of so many tokens for `reader`."""
        hand, policy = assign.dispatch, assign.policy.digest
        name = f"{holder} {hand.attempt}.{hand.planner_epoch}.{hand.seq}".encode()
        key = KvKey(policy, "prefix", tokens, "layout")
        self.granted += 1
        self._until[name] = self._world.now + self.lease
        return KvTicket(key, holder, 1, reader, self.lease, name)

    def is_open(self, ticket: KvTicket) -> bool:
        """Whether it is neither read, released nor past its time."""
        return self._world.now < self._until.get(ticket.opaque, 0.0)

    def pull(self, assign: Assign, actor: str) -> None:
        """Read what comes with the sample. A transfer would refuse what is asserted here."""
        ticket = assign.ticket
        if ticket is None:
            return
        assert ticket.reader == actor, "a ticket is for one reader"
        assert assign.resume is not None, "KV is of nothing but a text"
        assert assign.resume.n_tokens >= ticket.key.n_tokens
        assert ticket.key.policy_digest == assign.policy.digest, "KV is of one policy"
        self.read += self.is_open(ticket)
        self.missed += not self.is_open(ticket)
        self.release(ticket)

    def release(self, ticket: KvTicket | None) -> None:
        """Nobody will read it."""
        if ticket is not None:
            self._until.pop(ticket.opaque, None)

    def still_open(self, held: dict[Dispatch, KvTicket]) -> dict[Dispatch, KvTicket]:
        """Those that may still be read."""
        return {hand: ticket for hand, ticket in held.items() if self.is_open(ticket)}
