"""Every engine in turn, with a policy loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import torch

from ebbtide.testing.tiny_models import Tiny, publish_tiny
from tests.contract.engines.benches import KINDS, Bench, make


@pytest.fixture(scope="session")
def tinies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Tiny]:
    folder = tmp_path_factory.mktemp("policies")
    return publish_tiny(folder / "0"), publish_tiny(folder / "1", seed=1, n=1)


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, tinies: tuple[Tiny, Tiny]) -> AsyncIterator[Bench]:
    torch.set_num_threads(1)
    engine = make(request.param)
    await engine.load(tinies[0].policy, tinies[0].path)
    yield Bench(engine, *tinies)
    await engine.close()
