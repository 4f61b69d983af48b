"""What leases over TCP and a lane add: broken reads, readers that go, holders that die."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide import wire
from ebbtide.adapters.clock import SystemClock
from ebbtide.ports import Expired, Imported, Miss
from ebbtide.testing.transfer import FakeLane
from ebbtide.transfer import nixl
from ebbtide.transfer.counter import receive, send
from ebbtide.transfer.desk import Address, Claim, Lent
from ebbtide.transfer.lanes import Place, Unreadable
from ebbtide.transfer.nixl import NixlLane, installed
from ebbtide.transfer.remote import RemoteTransfer
from ebbtide.wire import KvTicket
from tests.worlds.transfers import Hands, blocks, fetch, key

needs_nixl = pytest.mark.skipif(not installed(), reason="install ebbtide[nixl] (Linux)")


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def pair(clock: Hands) -> AsyncIterator[tuple[RemoteTransfer, RemoteTransfer]]:
    places: dict[bytes, Place] = {}
    both = [start(clock, FakeLane(places), name) for name in ("a0", "a1")]
    yield both[0], both[1]
    for each in both:
        await each.close()


def start(clock: Hands, lane: FakeLane, name: str) -> RemoteTransfer:
    return RemoteTransfer(name=name, epoch=1, clock=clock, lane=lane, spare=4 << 20)


def lane_of(transfer: RemoteTransfer) -> FakeLane:
    assert isinstance(transfer._lane, FakeLane)
    return transfer._lane


def claimed(ticket: KvTicket) -> socket.socket:
    """A reader that has its export in its hands."""
    address = wire.decode(ticket.opaque, Address)
    peer = socket.create_connection((address.host, address.port), timeout=5.0)
    send(peer, Claim(ticket, ticket.reader, ticket.key))
    assert receive(peer, Lent).size == 1000
    return peer


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")


async def test_a_single_wrong_bit_is_found(pair: tuple[RemoteTransfer, RemoteTransfer]) -> None:
    holder, reader = pair
    lane_of(reader).spoil = True
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    pulled = await fetch(reader, ticket)
    assert isinstance(pulled, Miss)
    assert "does not hold" in pulled.why
    assert list(holder.held()) == []


async def test_what_the_lane_cannot_read_is_a_miss(
    pair: tuple[RemoteTransfer, RemoteTransfer],
) -> None:
    holder, reader = pair
    lane_of(reader).broken = True
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    assert isinstance(await fetch(reader, ticket), Miss)
    await until(lambda: not holder.held())


async def test_a_reader_that_goes_without_a_word_gives_it_back(
    pair: tuple[RemoteTransfer, RemoteTransfer],
) -> None:
    holder, _ = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    with closing(await asyncio.to_thread(claimed, ticket)):
        await until(lambda: lane_of(holder).helped > 0)
        assert list(holder.held()) == [ticket]
    await until(lambda: not holder.held())


@pytest.mark.parametrize("how", ["released", "expired"])
async def test_what_is_taken_back_during_the_read_is_not_used(
    pair: tuple[RemoteTransfer, RemoteTransfer], clock: Hands, how: str
) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    lane, real = lane_of(reader), FakeLane.read

    def slowly(*words: object) -> None:
        real(lane, *words)  # type: ignore[arg-type]
        holder.release(ticket) if how == "released" else clock.sleep_now(30.0)

    lane.read = slowly  # type: ignore[method-assign,assignment]
    assert isinstance(await fetch(reader, ticket), Expired | Miss)
    assert list(holder.held()) == []


async def test_memory_is_used_again_once_its_user_has_let_go(
    pair: tuple[RemoteTransfer, RemoteTransfer],
) -> None:
    holder, reader = pair
    kept = []
    for n in range(6):
        ticket = await holder.export(blocks(key(n)), reader="a1", seconds=30.0)
        pulled = await fetch(reader, ticket)
        assert isinstance(pulled, Imported)
        kept = [pulled]
        del pulled
        gc.collect()
    assert bytes(kept[0].kv.data) == bytes(blocks(key(5)).data)
    assert (lane_of(holder).opened, lane_of(reader).opened) == (1, 2)


async def test_an_address_of_nobody_is_a_miss(pair: tuple[RemoteTransfer, RemoteTransfer]) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    address = wire.decode(ticket.opaque, Address)
    for wrong in (replace(address, port=1), replace(address, host=""), replace(address, port=-1)):
        assert isinstance(await fetch(reader, replace(ticket, opaque=wire.encode(wrong))), Miss)
    guessed = replace(address, token=bytes(16))
    assert isinstance(await fetch(reader, replace(ticket, opaque=wire.encode(guessed))), Miss)
    assert isinstance(await fetch(reader, ticket), Imported)


async def test_noise_on_the_port_disturbs_nobody(
    pair: tuple[RemoteTransfer, RemoteTransfer],
) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    address = wire.decode(ticket.opaque, Address)
    for noise in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\x05\x00\x00\x00hello", b"\xff" * 10):
        with socket.create_connection((address.host, address.port)) as peer:
            peer.sendall(noise)
    assert isinstance(await fetch(reader, ticket), Imported)


@pytest.fixture
def distant() -> Iterator[tuple[KvTicket, subprocess.Popen[bytes]]]:
    """An export over NIXL in another process, for reader a1."""
    script = """
        import asyncio, sys
        from ebbtide import wire
        from ebbtide.adapters.clock import SystemClock
        from ebbtide.transfer.nixl import over_nixl
        from tests.worlds.transfers import blocks, key

        async def main():
            holder = over_nixl(name="a0", clock=SystemClock(), host="127.0.0.1")
            ticket = await holder.export(blocks(key(), 3 << 20), reader="a1", seconds=9.0)
            sys.stdout.write(wire.encode(ticket).hex() + "\\n")
            sys.stdout.flush()
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path.cwd())
    assert holder.stdout
    line = holder.stdout.readline()
    yield wire.decode(bytes.fromhex(line.decode()), KvTicket), holder
    holder.kill()
    holder.wait()
    holder.stdout.close()


@needs_nixl
async def test_nixl_reads_from_another_process(
    distant: tuple[KvTicket, subprocess.Popen[bytes]],
) -> None:
    ticket, _ = distant
    reader = nixl.over_nixl(name="a1", clock=SystemClock(), host="127.0.0.1")
    pulled = await fetch(reader, ticket)
    assert isinstance(pulled, Imported), pulled
    assert bytes(pulled.kv.data) == bytes(blocks(key(), 3 << 20).data)
    assert isinstance(await fetch(reader, ticket), Miss)
    await reader.close()


@needs_nixl
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_holder_that_dies_before_nixl_reads_costs_a_computation(
    distant: tuple[KvTicket, subprocess.Popen[bytes]], sign: signal.Signals
) -> None:
    ticket, holder = distant
    reader = nixl.over_nixl(name="a1", clock=SystemClock(), host="127.0.0.1")
    real = reader._lane.read

    def late(*words: object) -> None:
        os.kill(holder.pid, sign)
        real(*words)  # type: ignore[arg-type]

    reader._lane.read = late  # type: ignore[method-assign,assignment]
    pulled = await reader.pull(ticket, wanted=ticket.key, seconds=1.0)
    assert isinstance(pulled, Miss | Expired)
    await reader.close()


@needs_nixl
async def test_an_offer_that_is_not_nixls_is_unreadable() -> None:
    lane = NixlLane("alone")
    place = lane.open(1 << 20)
    for offer in (b"", b"x", wire.encode(nixl._Offer(b"nonsense", 4096, 1 << 20))):
        with pytest.raises(Unreadable):
            await asyncio.to_thread(lane.read, offer, place, 1000, 1.0, lambda *_: None)
    lane.drop(place)
    lane.close()
