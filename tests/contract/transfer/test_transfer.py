"""What every transfer of KV promises."""

from __future__ import annotations

from msgspec.structs import replace

from ebbtide.ports import Expired, Imported, Miss
from tests.worlds.transfers import Host, blocks, fetch, key


async def test_a_reader_gets_exactly_what_was_exported(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    for n, size in ((1, 0), (2, 1), (3, 700_001), (4, 3 << 20), (5, 10)):
        kv = blocks(key(n), size)
        ticket = await holder.export(kv, reader="a1", seconds=30.0)
        pulled = await fetch(reader, ticket)
        assert isinstance(pulled, Imported)
        assert (pulled.kv.key, bytes(pulled.kv.data)) == (kv.key, bytes(kv.data))
        assert list(holder.held()) == []


async def test_it_is_read_once(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    assert list(holder.held()) == [ticket]
    assert isinstance(await fetch(reader, ticket), Imported)
    assert isinstance(await fetch(reader, ticket), Miss)


async def test_what_has_expired_is_not_read(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    host.clock.at += 30.0
    assert not isinstance(await fetch(reader, ticket), Imported)
    assert list(holder.held()) == []
    assert not isinstance(await fetch(reader, ticket), Imported)


async def test_what_was_released_is_not_read(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    holder.release(ticket)
    holder.release(ticket)
    assert list(holder.held()) == []
    assert isinstance(await fetch(reader, ticket), Miss)


async def test_a_wrong_ask_leaves_it_for_the_right_one(host: Host) -> None:
    holder, reader, other = host.start("a0", 1), host.start("a1", 1), host.start("a2", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    assert isinstance(await fetch(other, ticket), Miss)
    assert isinstance(await fetch(reader, ticket, key(policy="other")), Miss)
    assert isinstance(await fetch(reader, replace(ticket, key=key(prefix="y"))), Miss)
    assert isinstance(await fetch(reader, replace(ticket, holder_epoch=2)), Miss)
    assert isinstance(await fetch(reader, ticket), Imported)


async def test_a_name_that_leads_elsewhere_is_a_miss(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    for opaque in (b"", b"../../etc/passwd", b"\xff\xfe", b"a0.1/zz", b"a0.1/../a0.1/00000000"):
        assert isinstance(await fetch(reader, replace(ticket, opaque=opaque)), Miss)


async def test_a_holder_that_has_closed_holds_nothing(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    await holder.close()
    assert isinstance(await fetch(reader, ticket), Miss)


async def test_a_ticket_without_time_is_expired(host: Host) -> None:
    holder, reader = host.start("a0", 1), host.start("a1", 1)
    ticket = await holder.export(blocks(key()), reader="a1", seconds=0.0)
    assert isinstance(await fetch(reader, ticket), Expired | Miss)
