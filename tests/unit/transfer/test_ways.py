"""Which transfer a process has."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ebbtide import logs
from ebbtide.errors import Permanent
from ebbtide.ports import Transfer
from ebbtide.testing.transfer import FakeHost, FakeTransfer
from ebbtide.transfer.ways import Way, chosen, open_transfer, own_address
from tests.worlds.transfers import Hands

REMOTE = FakeTransfer(FakeHost(Hands()), name="a0")


def there(**_: object) -> Transfer:
    return REMOTE


def missing(**_: object) -> Transfer:
    raise Permanent("NIXL does not start")


@pytest.mark.parametrize(
    ("way", "remote", "used"),
    [("nixl", there, "nixl"), ("nixl", missing, "shm"), ("shm", there, "shm")],
)
async def test_where_nixl_is_missing_shared_memory_is_used_and_it_is_said(
    tmp_path: Path, way: Way, remote: object, used: str
) -> None:
    said = io.StringIO()
    transfer, found = open_transfer(
        way,
        name="a0",
        clock=Hands(),
        folder=str(tmp_path),
        host="127.0.0.1",
        log=logs.setup("info", stream=said),
        remote=remote,  # type: ignore[arg-type]
    )
    assert (found, transfer is REMOTE) == (used, used == "nixl")
    assert ("no NIXL" in said.getvalue()) == (way != used)
    await transfer.close()


@pytest.mark.parametrize(
    ("asked", "engine", "environ", "way"),
    [
        (None, "torch", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "nixl"),
        (None, "torch", {}, "shm"),
        (None, "vllm", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "shm"),
        ("shm", "torch", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "shm"),
        ("nixl", "torch", {}, "nixl"),
    ],
)
def test_pods_share_no_memory_so_what_is_theirs_goes_by_nixl(
    asked: Way | None, engine: str, environ: dict[str, str], way: Way
) -> None:
    assert chosen(asked, engine=engine, environ=environ) == way


@pytest.mark.parametrize(
    "url", ["nats://127.0.0.1:4222", "nats://127.0.0.1,nats://b:1", "nats://no.such.host.invalid:1"]
)
def test_the_address_is_the_one_on_the_way_to_the_broker(url: str) -> None:
    assert own_address(url) == "127.0.0.1"
