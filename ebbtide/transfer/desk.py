"""A holder's leases, and what is said about them between holder and reader (docs/formats.md, 7)."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.ports import Clock
from ebbtide.transfer.lanes import Place, Pool
from ebbtide.transfer.tickets import Lease, Stage, unfit
from ebbtide.wire import KvKey, KvTicket, Wire


class Address(Wire, frozen=True):
    """A ticket's `opaque`: where its holder listens, and which export is meant."""

    host: str
    port: int
    token: bytes


class Claim(Wire, frozen=True, tag=True):
    """`reader` shows a ticket and says what it wants."""

    ticket: KvTicket
    reader: str
    wanted: KvKey


class Lent(Wire, frozen=True, tag=True):
    """It may be read: `size` bytes by the lane's `offer`, with checksums as in an export's header."""

    offer: bytes
    size: int
    sums: bytes


class NotLent(Wire, frozen=True, tag=True):
    """It may not, or no longer."""

    why: str
    late: bool = False


class Done(Wire, frozen=True, tag=True):
    """The reader has read; `whole`: the checksums hold."""

    whole: bool


class Settled(Wire, frozen=True, tag=True):
    """Whether the lease still held then; if not, what was read is not used."""

    valid: bool


@dataclass
class _Export:
    lease: Lease
    place: Place
    size: int
    sums: bytes


class Desk:
    """The exports of one holder; called from the event loop and from readers' threads."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._exports: dict[bytes, _Export] = {}
        self._lock = threading.Lock()

    def token(self) -> bytes:
        """A name that cannot be guessed: whoever knows it was shown the ticket."""
        return secrets.token_bytes(16)

    def grant(self, ticket: KvTicket, place: Place, size: int, sums: bytes) -> None:
        """Hold `place` for the ticket's reader from now on."""
        lease = Lease(ticket, self._clock.now() + ticket.expires_in)
        with self._lock:
            self._exports[ticket.opaque] = _Export(lease, place, size, sums)

    def claim(self, ask: Claim) -> _Export | NotLent:
        """Put the export into the reader's hands, if it is what is wanted."""
        with self._lock:
            export = self._exports.get(ask.ticket.opaque)
            if export is None:
                return NotLent("it was read, taken back, or its holder is gone")
            held = export.lease.ticket
            if reason := unfit(ask.ticket, held, reader=ask.reader, wanted=ask.wanted):
                return NotLent(reason)
            taken = export.lease.to(Stage.READING, self._clock.now())
            if taken is None:
                return NotLent("its time was up, or another reads it", late=True)
            export.lease = taken
            return export

    def settle(self, opaque: bytes, *, whole: bool) -> bool:
        """The reader is done; whether its lease held to the end."""
        with self._lock:
            export = self._exports.pop(opaque, None)
        if export is None:
            return False
        valid = export.lease.to(Stage.CONSUMED, self._clock.now()) is not None
        self._pool.give_back(export.place)
        return valid and whole

    def open(self, opaque: bytes) -> bool:
        """Whether it is still held."""
        export = self._exports.get(opaque)
        return export is not None and export.lease.at(self._clock.now()).open

    def release(self, opaque: bytes) -> None:
        """Take it back, wherever it stands."""
        with self._lock:
            export = self._exports.pop(opaque, None)
        if export:
            self._pool.give_back(export.place)

    def held(self) -> Sequence[KvTicket]:
        """What may still be read; what has expired is taken back."""
        for opaque in list(self._exports):
            if not self.open(opaque):
                self.release(opaque)
        return [export.lease.ticket for export in list(self._exports.values())]

    def clear(self) -> None:
        """Hold nothing."""
        for opaque in list(self._exports):
            self.release(opaque)
