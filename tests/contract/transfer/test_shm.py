"""What shared memory adds: corruption, death, time that passes in the middle of a read."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ebbtide.errors import Temporary
from ebbtide.ports import Expired, Imported, Miss
from ebbtide.transfer.shm import Reading, ShmTransfer, default_folder, in_host
from ebbtide.wire import KvTicket
from tests.worlds.transfers import Hands, blocks, fetch, key


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def pair(tmp_path: Path, clock: Hands) -> tuple[ShmTransfer, ShmTransfer]:
    return start(tmp_path, clock, "a0"), start(tmp_path, clock, "a1")


def start(root: Path, clock: Hands, name: str, epoch: int = 1) -> ShmTransfer:
    return ShmTransfer(name=name, epoch=epoch, clock=clock, root=root, spare=4 << 20)


def files(root: Path) -> list[str]:
    return sorted(p.name for p in root.glob("*/0*.*"))


def spoil(root: Path, at: int) -> None:
    """Turn one bit of the only export."""
    [path] = root.glob("*/*.granted")
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def claimed(reader: ShmTransfer, ticket: KvTicket, clock: Hands) -> Reading:
    reading = reader.claim(ticket, wanted=ticket.key, until=clock.now() + 5.0)
    assert isinstance(reading, Reading)
    return reading


@pytest.mark.parametrize("where", [0, 9, 40, 4096, 300_000, 599_999])
async def test_a_single_wrong_bit_is_found(
    pair: tuple[ShmTransfer, ShmTransfer], tmp_path: Path, where: int
) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key(), 600_000), reader="a1", seconds=30.0)
    spoil(tmp_path, where)
    assert isinstance(await fetch(reader, ticket), Miss)


async def test_what_is_taken_back_during_the_read_is_not_used(
    pair: tuple[ShmTransfer, ShmTransfer], clock: Hands
) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    reading = claimed(reader, ticket, clock)
    holder.release(ticket)
    await holder.export(blocks(key(8)), reader="a1", seconds=30.0)
    assert not isinstance(reader.finish(reading), Imported)


async def test_a_slow_reader_gives_up(pair: tuple[ShmTransfer, ShmTransfer], clock: Hands) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    reading = claimed(reader, ticket, clock)
    clock.at += 5.0
    assert isinstance(reader.finish(reading), Expired)
    assert list(holder.held()) == [ticket]
    clock.at += 25.0
    assert list(holder.held()) == []


async def test_the_place_of_what_was_read_is_used_again(
    pair: tuple[ShmTransfer, ShmTransfer], tmp_path: Path
) -> None:
    holder, reader = pair
    for n in range(5):
        ticket = await holder.export(blocks(key(n), 5000 * (n + 1)), reader="a1", seconds=30.0)
        assert isinstance(await fetch(reader, ticket), Imported)
        assert not holder.held()
    assert len(files(tmp_path)) <= 2


async def test_what_a_reader_uses_is_not_written_over(
    pair: tuple[ShmTransfer, ShmTransfer], clock: Hands
) -> None:
    holder, reader = pair
    ticket = await holder.export(blocks(key()), reader="a1", seconds=30.0)
    pulled = await fetch(reader, ticket)
    for n in range(3):
        clock.at += 50.0
        holder.held()
        await holder.export(blocks(key(n)), reader="a1", seconds=30.0)
    assert isinstance(pulled, Imported)
    assert bytes(pulled.kv.data) == bytes(blocks(key()).data)


async def test_no_more_is_kept_than_the_spare_allows(
    pair: tuple[ShmTransfer, ShmTransfer], tmp_path: Path
) -> None:
    holder, _ = pair
    for n in range(7):
        await holder.export(blocks(key(n)), reader="a1", seconds=30.0)
    for ticket in holder.held():
        holder.release(ticket)
    assert len(files(tmp_path)) == 4


def test_whoever_starts_clears_away_the_dead(tmp_path: Path, clock: Hands) -> None:
    script = f"""
        import asyncio, os, signal
        from pathlib import Path
        from tests.worlds.transfers import Hands, blocks, key
        from ebbtide.transfer.shm import ShmTransfer
        holder = ShmTransfer(name="dead", epoch=1, clock=Hands(), root=Path({str(tmp_path)!r}))
        asyncio.run(holder.export(blocks(key()), reader="a1", seconds=30.0))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, cwd=Path.cwd(), check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert len(files(tmp_path)) == 1
    living = start(tmp_path, clock, "a0")
    asyncio.run(living.export(blocks(key()), reader="a1", seconds=30.0))
    start(tmp_path, clock, "a1")
    assert [p.parent.name for p in tmp_path.glob("*/*.granted")] == ["a0.1"]


def test_nothing_of_others_is_cleared_away(tmp_path: Path, clock: Hands) -> None:
    (tmp_path / "other" / "lock").mkdir(parents=True)
    start(tmp_path, clock, "a0")
    assert (tmp_path / "other" / "lock").exists()


async def test_a_full_memory_is_temporary(
    pair: tuple[ShmTransfer, ShmTransfer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(Temporary, match="no space"):
        await pair[0].export(blocks(key()), reader="a1", seconds=30.0)


async def test_it_lives_in_this_users_memory_unless_told_otherwise(tmp_path: Path) -> None:
    assert str(os.getuid()) in default_folder().name
    transfer = in_host(name="a0", clock=Hands(), folder=str(tmp_path / "kv"))
    assert (tmp_path / "kv").stat().st_mode & 0o077 == 0
    await transfer.close()
