"""Tickets under any order of grants, asks right and wrong, time, releases and deaths."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from ebbtide.ports import Imported, Transfer
from ebbtide.testing.transfer import FakeHost, FakeLane, FakeTransfer
from ebbtide.transfer.lanes import Place
from ebbtide.transfer.remote import RemoteTransfer
from ebbtide.transfer.shm import Reading, ShmTransfer
from ebbtide.wire import KvKey, KvTicket
from tests.worlds.transfers import Hands, blocks, key

NAMES = ("a0", "a1", "a2")
names = st.sampled_from(NAMES)
keys = st.builds(
    lambda n, policy, prefix, layout: key(n, policy=policy, prefix=prefix, layout=layout),
    st.integers(1, 2),
    *[st.sampled_from("xy")] * 3,
)
picks = st.integers(0, 100)


class Tickets(RuleBasedStateMachine):
    """A model beside the transfers: what may be read, by whom, until when."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Hands()
        self.host = FakeHost(self.clock)
        self.epochs = dict.fromkeys(NAMES, 0)
        self.actors: dict[str, Transfer] = {}
        self.until: dict[bytes, float] = {}
        self.tickets: list[KvTicket] = []
        for name in NAMES:
            self.start(name)

    def make(self, name: str, epoch: int) -> Transfer:
        return FakeTransfer(self.host, name=name, epoch=epoch)

    def start(self, name: str) -> None:
        self.epochs[name] += 1
        self.actors[name] = self.make(name, self.epochs[name])

    @rule(holder=names, reader=names, kv=keys, seconds=st.sampled_from([0.0, 1.0, 30.0]))
    def grant(self, holder: str, reader: str, kv: KvKey, seconds: float) -> None:
        data = blocks(kv, 3000)
        ticket = asyncio.run(self.actors[holder].export(data, reader=reader, seconds=seconds))
        self.tickets.append(ticket)
        self.until[ticket.opaque] = self.clock.now() + seconds

    def may(self, who: str, shown: KvTicket, real: KvTicket, wanted: KvKey) -> bool:
        right = shown == real and wanted == real.key and who == real.reader
        return right and self.clock.now() < self.until.get(real.opaque, 0.0)

    @precondition(lambda self: self.tickets)
    @rule(pick=picks, honest=st.sampled_from([True, True, False]), who=names, kv=keys, twist=picks)
    def ask(self, pick: int, who: str, kv: KvKey, twist: int, *, honest: bool) -> None:
        real = self.tickets[pick % len(self.tickets)]
        shown, wanted, who = (real, real.key, real.reader) if honest else (real, kv, who)
        if not honest:
            twists: list[dict[str, Any]] = [{}, {"key": kv}, {"holder_epoch": 9}, {"reader": who}]
            shown = replace(real, **twists[twist % len(twists)])
        may = self.may(who, shown, real, wanted)
        got = asyncio.run(self.actors[who].pull(shown, wanted=wanted, seconds=5.0))
        assert isinstance(got, Imported) == may, got
        if isinstance(got, Imported):
            assert bytes(got.kv.data) == bytes(blocks(wanted, 3000).data)
            del self.until[real.opaque]

    @precondition(lambda self: self.tickets)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        ticket = self.tickets[pick % len(self.tickets)]
        if ticket.holder_epoch == self.epochs[ticket.holder]:
            self.actors[ticket.holder].release(ticket)
            self.until.pop(ticket.opaque, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.at += seconds

    @rule(who=names)
    def look(self, who: str) -> None:
        held = {ticket.opaque for ticket in self.actors[who].held()}
        mine = {t.opaque for t in self.tickets if t.holder == who}
        assert held == {o for o, until in self.until.items() if until > self.clock.now()} & mine

    @rule(who=names)
    def restart(self, who: str) -> None:
        asyncio.run(self.actors[who].close())
        mine = [t.opaque for t in self.tickets if t.holder == who]
        self.until = {o: until for o, until in self.until.items() if o not in mine}
        self.start(who)


class SharedTickets(Tickets):
    """The same on shared memory, where a read can be looked into."""

    def __init__(self) -> None:
        self.root = tempfile.TemporaryDirectory()
        super().__init__()

    def make(self, name: str, epoch: int) -> Transfer:
        return ShmTransfer(name=name, epoch=epoch, clock=self.clock, root=Path(self.root.name))

    @precondition(lambda self: self.tickets)
    @rule(pick=picks, meanwhile=st.sampled_from(["nothing", "wait", "release", "write", "restart"]))
    def ask_slowly(self, pick: int, meanwhile: str) -> None:
        """Something happens between the beginning and the end of a read."""
        real = self.tickets[pick % len(self.tickets)]
        reader = self.actors[real.reader]
        assert isinstance(reader, ShmTransfer)
        found = reader.claim(real, wanted=real.key, until=self.clock.now() + 10.0)
        assert isinstance(found, Reading) == self.may(real.reader, real, real, real.key)
        if not isinstance(found, Reading):
            return
        self._meanwhile(meanwhile, real)
        got = reader.finish(found)
        assert isinstance(got, Imported) == (meanwhile == "nothing")
        self.until.pop(real.opaque, None)

    def _meanwhile(self, what: str, real: KvTicket) -> None:
        if what == "wait":
            self.clock.at += 10.0
        elif what == "restart":
            self.restart(real.holder)
        elif what in ("release", "write"):
            self.actors[real.holder].release(real)
        if what == "write":
            self.grant(real.holder, real.reader, key(9), 30.0)

    def teardown(self) -> None:
        for actor in self.actors.values():
            asyncio.run(actor.close())
        self.root.cleanup()


class LaneTickets(Tickets):
    """The same with leases over TCP."""

    def __init__(self) -> None:
        self.places: dict[bytes, Place] = {}
        super().__init__()

    def make(self, name: str, epoch: int) -> Transfer:
        lane = FakeLane(self.places)
        return RemoteTransfer(name=name, epoch=epoch, clock=self.clock, lane=lane)

    def teardown(self) -> None:
        for actor in self.actors.values():
            asyncio.run(actor.close())


_HOW = settings(max_examples=25, stateful_step_count=30, deadline=None)
Tickets.TestCase.settings = SharedTickets.TestCase.settings = _HOW
LaneTickets.TestCase.settings = settings(_HOW, max_examples=10)
TestTickets = Tickets.TestCase
TestSharedTickets = SharedTickets.TestCase
TestLaneTickets = LaneTickets.TestCase
