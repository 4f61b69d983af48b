"""Real servers for the contract tests: one broker and one hot store per test run."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ebbtide.adapters.embedded import EmbeddedServers
from tests.worlds.s3 import server, variables


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServers]:
    embedded = EmbeddedServers(folder=tmp_path_factory.mktemp("servers"))
    _run_apart(embedded.start)
    yield embedded
    _run_apart(embedded.stop)


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Port of a real S3 server; this process has its credentials as a pod would have them."""
    for name, value in variables(s3_port).items():
        monkeypatch.setenv(name, value)
    return s3_port


def _run_apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in a thread: the test that asks first may already be inside a loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()
