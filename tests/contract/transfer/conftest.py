"""Two actors of one host, on the fake and on real shared memory, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide.testing.transfer import FakeHost, FakeTransfer
from ebbtide.transfer.shm import ShmTransfer
from tests.worlds.transfers import Hands, Host


@pytest.fixture(params=["fake", "shm"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    clock = Hands()
    if request.param == "shm":
        yield Host(clock, lambda n, e: ShmTransfer(name=n, epoch=e, clock=clock, root=tmp_path))
        return
    shared = FakeHost(clock)
    yield Host(clock, lambda n, e: FakeTransfer(shared, name=n, epoch=e))
