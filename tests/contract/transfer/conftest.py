"""Two actors of one host, on fakes, real shared memory and NIXL, and a clock that a test moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ebbtide.ports import Transfer
from ebbtide.testing.transfer import FakeHost, FakeLane, FakeTransfer
from ebbtide.transfer.lanes import Lane, Place
from ebbtide.transfer.nixl import NixlLane, installed
from ebbtide.transfer.remote import RemoteTransfer
from ebbtide.transfer.shm import ShmTransfer
from tests.worlds.transfers import Hands, Host

_AGENTS = itertools.count()


@pytest.fixture(params=["fake", "shm", "lanes", "nixl"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    clock = Hands()
    shared, places = FakeHost(clock), dict[bytes, Place]()

    def remote(name: str, epoch: int, lane: Lane) -> RemoteTransfer:
        return RemoteTransfer(name=name, epoch=epoch, clock=clock, lane=lane)

    if request.param == "nixl" and not installed():
        pytest.skip("NIXL has wheels for Linux alone: install ebbtide[nixl]")
    makers: dict[str, Callable[[str, int], Transfer]] = {
        "fake": lambda n, e: FakeTransfer(shared, name=n, epoch=e),
        "shm": lambda n, e: ShmTransfer(name=n, epoch=e, clock=clock, root=tmp_path),
        "lanes": lambda n, e: remote(n, e, FakeLane(places)),
        "nixl": lambda n, e: remote(n, e, NixlLane(f"{n}.{e}.{next(_AGENTS)}")),
    }
    return Host(clock, makers[request.param])
