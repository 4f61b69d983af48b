"""Transfer within one process: tickets are looked at as between processes, bytes are shared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ebbtide.ports import Clock, Expired, Imported, KvData, Miss
from ebbtide.transfer.lanes import Arrived, Place, Unreadable
from ebbtide.transfer.tickets import Lease, Stage, patience, unfit, unwanted
from ebbtide.wire import KvKey, KvTicket


@dataclass
class FakeHost:
    """What the transfers of one host share. A pull takes `read_seconds` of the clock."""

    clock: Clock
    read_seconds: float = 0.0
    leases: dict[bytes, tuple[Lease, bytes]] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)


class FakeTransfer:
    """`ebbtide.ports.Transfer` of one process of `host`."""

    def __init__(self, host: FakeHost, *, name: str, epoch: int = 1) -> None:
        self.name, self.epoch, self._host = name, epoch, host

    async def export(self, kv: KvData, *, reader: str, seconds: float) -> KvTicket:
        opaque = b"%d" % next(self._host.numbers)
        ticket = KvTicket(kv.key, self.name, self.epoch, reader, seconds, opaque)
        lease = Lease(ticket, self._host.clock.now() + seconds)
        self._host.leases[opaque] = (lease, bytes(kv.data))
        return ticket

    async def pull(
        self, ticket: KvTicket, *, wanted: KvKey, seconds: float
    ) -> Imported | Miss | Expired:
        if reason := unwanted(ticket.key, wanted):
            return Miss(reason)
        if ticket.opaque not in self._host.leases:
            return Miss("no such export")
        lease, data = self._host.leases[ticket.opaque]
        if reason := unfit(ticket, lease.ticket, reader=self.name, wanted=wanted):
            return Miss(reason)
        if not self._to(ticket, Stage.READING):
            return Miss("it was read or taken back")
        in_time = await self._read(patience(ticket, seconds))
        if not in_time or not self._to(ticket, Stage.CONSUMED):
            return Expired("its time was up, or it was taken back, while it was read")
        return Imported(KvData(lease.ticket.key, memoryview(data)))

    async def _read(self, seconds: float) -> bool:
        """Let the time of a read go by; whether it was short enough."""
        if self._host.read_seconds:
            await self._host.clock.sleep(min(seconds, self._host.read_seconds))
        return self._host.read_seconds < seconds

    def release(self, ticket: KvTicket) -> None:
        self._to(ticket, Stage.RELEASED)

    def held(self) -> Sequence[KvTicket]:
        now, mine = self._host.clock.now(), []
        for opaque, (lease, _) in list(self._host.leases.items()):
            if (lease.ticket.holder, lease.ticket.holder_epoch) != (self.name, self.epoch):
                continue
            if lease.at(now).open:
                mine.append(lease.ticket)
            else:
                del self._host.leases[opaque]
        return mine

    async def close(self) -> None:
        for ticket in self.held():
            self.release(ticket)

    def _to(self, ticket: KvTicket, stage: Stage) -> bool:
        lease, data = self._host.leases.get(ticket.opaque, (None, b""))
        moved = lease.to(stage, self._host.clock.now()) if lease else None
        if moved is None:
            return False
        self._host.leases[ticket.opaque] = (moved, data)
        return True


class FakeLane:
    """`ebbtide.transfer.lanes.Lane` within one process; `places` are those of all its lanes.

    `spoil`: turn a bit of what is read. `broken`: nothing can be read.
    """

    def __init__(self, places: dict[bytes, Place]) -> None:
        self._places = places
        self._mine: set[bytes] = set()
        self.spoil = self.broken = False
        self.opened = self.helped = 0

    def open(self, size: int) -> Place:
        self.opened += 1
        return Place(np.zeros(size, dtype=np.uint8), None)

    def drop(self, place: Place) -> None:
        self._places.pop(self._name(place), None)

    def offer(self, place: Place) -> bytes:
        self._places[self._name(place)] = place
        self._mine.add(self._name(place))
        return self._name(place)

    def read(self, offer: bytes, into: Place, size: int, seconds: float, arrived: Arrived) -> None:
        if self.broken or offer not in self._places:
            raise Unreadable("the lane is broken")
        if seconds <= 0:
            raise Unreadable("no time", late=True)
        into.data[:size] = self._places[offer].data[:size]
        if self.spoil:
            into.data[0] ^= 1
        arrived(0, size)

    def progress(self) -> None:
        self.helped += 1

    def close(self) -> None:
        for name in self._mine:
            self._places.pop(name, None)

    @staticmethod
    def _name(place: Place) -> bytes:
        return b"%d" % id(place)
