"""Embedded servers start, are found again, and say clearly why they cannot start."""

import socket
from pathlib import Path

import pytest

from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.errors import Corrupt, Permanent, Refused, Temporary


async def test_servers_run_inside_the_context_only(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as servers:
        assert servers.nats.alive()
        assert servers.valkey.alive()
        children = (servers.nats, servers.valkey)
    assert not any(child.alive() for child in children)


async def test_a_second_start_adopts_what_runs(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as first:
        second = EmbeddedServers(folder=tmp_path)
        await second.start()
        assert (second.nats.pid, second.valkey.pid) == (first.nats.pid, first.valkey.pid)
        assert second.credentials == first.credentials


async def test_what_runs_is_found_where_there_is_no_ps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedServers(folder=tmp_path) as first:
        monkeypatch.setenv("PATH", "/nonexistent")
        second = EmbeddedServers(folder=tmp_path)
        await second.start()
        assert second.nats.pid == first.nats.pid


async def test_a_crashed_server_comes_back_on_its_port(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as servers:
        port, pid = servers.nats.port, servers.nats.pid
        await servers.nats.kill()
        await servers.nats.start()
        assert servers.nats.port == port
        assert servers.nats.pid != pid


async def test_a_taken_port_is_refused_by_number(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(Refused, match=f"port {port} on 127.0.0.1 is in use"):
            await EmbeddedServers(folder=tmp_path, nats_port=port).start()


async def test_if_one_cannot_start_neither_stays(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        servers = EmbeddedServers(folder=tmp_path, valkey_port=holder.getsockname()[1])
        with pytest.raises(Refused):
            await servers.start()
        assert not servers.nats.alive()


async def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_bytes(b"a file where the storage should be")
    with pytest.raises(
        Permanent, match=r"nats-server on port \d+ ended at once: .* not a directory"
    ):
        await EmbeddedServers(folder=tmp_path).start()


async def test_passwords_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path):
        for name in ("credentials.json", "nats-server.conf", "valkey-server.conf"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0


async def test_a_server_waits_for_the_port_on_which_others_know_it(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as servers:
        port = servers.nats.port
        await servers.nats.kill()
        with socket.create_server(("127.0.0.1", port)):
            with pytest.raises(Temporary, match=f"port {port} .* waits for it"):
                await servers.nats.start()
            with pytest.raises(Temporary):
                await servers.nats.start()
        await servers.nats.start()
        assert (servers.nats.port, servers.moved) == (port, False)


async def test_a_later_run_says_that_a_port_has_moved(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as first:
        port = first.nats.port
        assert not first.moved
    with socket.create_server(("127.0.0.1", port)):
        async with EmbeddedServers(folder=tmp_path) as second:
            assert second.nats.port != port
            assert second.moved


def test_damaged_passwords_are_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").touch()
    with pytest.raises(Corrupt, match=r"credentials\.json is damaged .* `ebbtide down`"):
        EmbeddedServers(folder=tmp_path)
