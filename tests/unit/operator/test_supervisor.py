"""A supervisor ends all that it started, whatever is broken, and heals its own folder."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
from pathlib import Path

import pytest

from ebbtide import logs, tokens
from ebbtide.adapters.daemon import write_private
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.endpoint import Up, read_up, write_up
from ebbtide.errors import Permanent
from ebbtide.logs import Log
from ebbtide_operator import leftovers
from ebbtide_operator.display import Display
from ebbtide_operator.up import Stack, admit


@pytest.fixture
def log() -> Log:
    return logs.setup("error", stream=io.StringIO())


class Servers(EmbeddedServers):
    """They cannot start."""

    stopped = False

    async def start(self) -> None:
        raise Permanent("nats-server ended at once")

    async def stop(self) -> None:
        self.stopped = True


class Disk:
    """A disk that is full."""

    full = True

    def write(self, folder: Path, up: Up) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        write_up(folder, up)


def test_what_cannot_be_shown_now_is_shown_later(tmp_path: Path, log: Log) -> None:
    disk, up = Disk(), Up("http://here", "token", "state", stage="ready")
    display = Display(tmp_path, log=log, write=disk.write)
    display.show(up)
    assert read_up(tmp_path) is None
    disk.full = False
    display.show(up)
    assert read_up(tmp_path) == up


async def test_a_full_disk_is_in_the_way_of_no_shutdown(tmp_path: Path, log: Log) -> None:
    servers, display = Servers(folder=tmp_path), Display(tmp_path, log=log, write=Disk().write)
    stack = Stack(state=tmp_path, port=1, log=log, servers=servers, display=display)
    with pytest.raises(Permanent, match="nats-server ended at once"):
        await stack.run(asyncio.Event())
    assert servers.stopped


async def test_a_damaged_store_keeps_no_server_running(tmp_path: Path, log: Log) -> None:
    damage(tmp_path)
    servers, display = Servers(folder=tmp_path), Display(tmp_path, log=log)
    stack = Stack(state=tmp_path, port=1, log=log, servers=servers, display=display)
    with pytest.raises(Permanent):
        await stack.run(asyncio.Event())
    assert servers.stopped
    shown = read_up(tmp_path)
    assert shown is not None
    assert shown.stage == "stopped"


async def test_a_damaged_store_is_named_with_what_to_do(tmp_path: Path) -> None:
    damage(tmp_path)
    with pytest.raises(Permanent, match=r"cluster\.sqlite: file is not .* put back a good copy"):
        await leftovers.check_store(tmp_path)


def test_nobody_is_told_to_move_a_store_away_from_a_full_disk(tmp_path: Path) -> None:
    assert leftovers.mend(tmp_path, free=4096) == (
        f"the disk of {tmp_path} is full: free some space there"
    )
    assert "put back a good copy" in leftovers.mend(tmp_path, free=1 << 30)


@pytest.mark.parametrize("gone", [False, True])
def test_pods_that_no_store_tells_of_are_ended_too(tmp_path: Path, log: Log, gone: bool) -> None:
    damage(tmp_path)
    file = leftovers.store_file(tmp_path)
    environment = os.environ | {"EBBTIDE_CLUSTER": str(file), "EBBTIDE_POD": "p"}
    with subprocess.Popen(["sleep", "600"], env=environment) as pod:
        if gone:
            file.unlink()
            asyncio.run(leftovers.end_pods(tmp_path, log))
        else:
            with pytest.raises(Permanent):
                asyncio.run(leftovers.end_pods(tmp_path, log))
        assert pod.wait(10) == -15


def test_servers_are_found_without_any_file_of_their_own(tmp_path: Path, log: Log) -> None:
    config = str(tmp_path / "servers" / "nats-server.conf")
    command = ["sh", "-c", "read -r line", config]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as server:
        asyncio.run(leftovers.end_servers(tmp_path / "other", log))
        assert server.poll() is None
        asyncio.run(leftovers.end_servers(tmp_path, log))
        assert server.wait(10) == -15


def admits(state: Path, token: str) -> str | None:
    return tokens.tenant_of(token, tokens.parse((state / "tokens.txt").read_text()))


def test_a_list_that_is_gone_admits_the_token_again(tmp_path: Path) -> None:
    admit(tmp_path)
    token = (tmp_path / "token").read_text().strip()
    (tmp_path / "tokens.txt").unlink()
    admit(tmp_path)
    assert (tmp_path / "token").read_text().strip() == token
    assert admits(tmp_path, token) == "local"


def test_a_token_that_is_gone_is_replaced_and_admitted_no_longer(tmp_path: Path) -> None:
    admit(tmp_path)
    old = (tmp_path / "token").read_text().strip()
    with (tmp_path / "tokens.txt").open("a") as listed:
        listed.write(tokens.line("team", "theirs") + "\n")
    (tmp_path / "token").write_text("")
    admit(tmp_path)
    new = (tmp_path / "token").read_text().strip()
    assert [admits(tmp_path, t) for t in (old, new, "theirs")] == [None, "local", "team"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    write_private(file, b"old")
    (tmp_path / "credentials.json.new").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(file, b"new")
    write_private(file, b"old")
    assert file.read_bytes() == b"old"
    assert file.stat().st_mode & 0o777 == 0o600


def damage(state: Path) -> None:
    leftovers.store_file(state).write_bytes(b"no database" * 1000)
