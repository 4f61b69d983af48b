"""The transfer between processes of any hosts: leases over TCP, keys and values by a lane.

A reader claims its export at the holder's counter, reads it by the lane, verifies every block,
and asks whether the lease held to the end. So a holder that took it back, died or started anew
is noticed, and nothing is ever used in part.
"""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from collections.abc import Sequence
from contextlib import closing

import msgspec
import numpy as np

from ebbtide import wire
from ebbtide.ports import Clock, Expired, Imported, KvData, Miss
from ebbtide.transfer import frames
from ebbtide.transfer.counter import Counter, receive, send
from ebbtide.transfer.desk import Address, Claim, Desk, Done, Lent, NotLent, Settled
from ebbtide.transfer.lanes import Lane, Place, Pool, Unreadable
from ebbtide.transfer.tickets import patience, unwanted
from ebbtide.wire import KvKey, KvTicket

SPARE_BYTES = 512 << 20


class RemoteTransfer:
    """`name`: this process, as holder and as reader; `epoch`: new with each start of it.

    `host`: the address at which others reach this process. Raises OSError.
    """

    def __init__(
        self,
        *,
        name: str,
        epoch: int,
        clock: Clock,
        lane: Lane,
        host: str = "127.0.0.1",
        spare: int = SPARE_BYTES,
    ) -> None:
        self.name, self.epoch, self._host = name, epoch, host
        self._clock, self._lane = clock, lane
        self._pool = Pool(lane, spare=spare)
        self._desk = Desk(pool=self._pool, clock=clock)
        self._counter = Counter(host=host, desk=self._desk, lane=lane)
        self._lost: list[Place] = []

    # --- holder ---------------------------------------------------------------------------------

    async def export(self, kv: KvData, *, reader: str, seconds: float) -> KvTicket:
        address = Address(self._host, self._counter.port, self._desk.token())
        opaque = wire.encode(address)
        ticket = KvTicket(kv.key, self.name, self.epoch, reader, seconds, opaque)
        body = np.frombuffer(kv.data, dtype=np.uint8)
        place, sums = await asyncio.to_thread(self._write, body)
        self._desk.grant(ticket, place, len(body), sums)
        return ticket

    def release(self, ticket: KvTicket) -> None:
        self._desk.release(ticket.opaque)

    def held(self) -> Sequence[KvTicket]:
        return self._desk.held()

    async def close(self) -> None:
        self._counter.close()
        self._desk.clear()
        await asyncio.to_thread(self._lane.close)

    def _write(self, body: frames.Bytes) -> tuple[Place, bytes]:
        place = self._pool.take(len(body))
        return place, frames.copy(place.data[: len(body)], body)

    # --- reader ---------------------------------------------------------------------------------

    async def pull(
        self, ticket: KvTicket, *, wanted: KvKey, seconds: float
    ) -> Imported | Miss | Expired:
        if reason := unwanted(ticket.key, wanted):
            return Miss(reason)
        limit = patience(ticket, seconds)
        if limit <= 0:
            return Expired("there is no time to read it")
        return await asyncio.to_thread(self._pull, ticket, wanted, limit)

    def _pull(self, ticket: KvTicket, wanted: KvKey, seconds: float) -> Imported | Miss | Expired:
        until = time.monotonic() + seconds
        try:
            address = wire.decode(ticket.opaque, Address)
            holder = socket.create_connection((address.host, address.port), timeout=seconds)
        except (msgspec.DecodeError, UnicodeError, OverflowError):
            return Miss("the ticket names no export")
        except TimeoutError:
            return Expired("its holder does not answer")
        except OSError as error:
            return Miss(f"its holder is gone: {error}")
        with closing(holder):
            return self._claimed(holder, Claim(ticket, self.name, wanted), until)

    def _claimed(
        self, holder: socket.socket, ask: Claim, until: float
    ) -> Imported | Miss | Expired:
        try:
            send(holder, ask)
            answer = receive(holder, Lent | NotLent)  # type: ignore[arg-type]
            if isinstance(answer, NotLent):
                return Expired(answer.why) if answer.late else Miss(answer.why)
            assert isinstance(answer, Lent)
            return self._read(holder, ask.ticket, answer, until)
        except TimeoutError:
            return Expired("its holder does not answer")
        except (OSError, EOFError, msgspec.DecodeError) as error:
            return Miss(f"its holder is gone: {error}")

    def _read(
        self, holder: socket.socket, ticket: KvTicket, lent: Lent, until: float
    ) -> Imported | Miss | Expired:
        place = self._pool.take(lent.size)
        body = place.data[: lent.size]
        checker = frames.Checker(body, lent.sums)
        try:
            self._lane.read(lent.offer, place, lent.size, until - time.monotonic(), checker.arrived)
        except Unreadable as error:
            (self._pool.give_back if error.idle else self._lost.append)(place)
            return Expired(str(error)) if error.late else Miss(str(error))
        try:
            result = self._verified(holder, ticket, body, whole=checker.whole)
        except BaseException:
            self._pool.give_back(place)
            raise
        if not isinstance(result, Imported):
            self._pool.give_back(place)
            return result
        # Whoever uses the body keeps it; when the last has let go, the memory is used again.
        weakref.finalize(body, self._pool.give_back, place)
        return result

    def _verified(
        self, holder: socket.socket, ticket: KvTicket, body: frames.Bytes, *, whole: bool
    ) -> Imported | Miss | Expired:
        """Say whether all blocks hold, and ask whether the lease held to the end."""
        send(holder, Done(whole))
        valid = receive(holder, Settled).valid
        if not whole:
            return Miss("a block of keys and values does not hold")
        if not valid:
            return Expired("it was taken back, or its time was up, while it was read")
        return Imported(KvData(ticket.key, body.data))
