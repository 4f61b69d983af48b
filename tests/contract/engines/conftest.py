"""Every engine in turn, with a policy loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from ebbtide.testing.tiny_models import Tiny, publish_tiny, qwen2
from tests.contract.engines.benches import HAS_VLLM, KINDS, Bench, make, settle, start_vllm


@pytest.fixture(scope="session")
def tinies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Tiny]:
    folder = tmp_path_factory.mktemp("policies")
    return publish_tiny(folder / "0"), publish_tiny(folder / "1", seed=1, n=1)


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Tiny]:
    """With heads of a size that vLLM's kernels know."""
    folder, config = tmp_path_factory.mktemp("wide"), qwen2(head=32)
    first = publish_tiny(folder / "0", config=config)
    return first, publish_tiny(folder / "1", config=config, seed=1, n=1)


@pytest.fixture(scope="session")
def vllm() -> Iterator[Any]:
    if not HAS_VLLM:
        pytest.skip("vLLM has an environment of its own: make setup-vllm test-vllm")
    engine = start_vllm()
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
async def served(vllm: Any, wide: tuple[Tiny, Tiny]) -> AsyncIterator[Bench]:
    """The session's vLLM with the first policy."""
    await vllm.load(wide[0].policy, wide[0].path)
    yield Bench(vllm, *wide)
    await settle(vllm)


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, tinies: tuple[Tiny, Tiny]) -> AsyncIterator[Bench]:
    torch.set_num_threads(1)
    if request.param == "vllm":
        engine, policies = request.getfixturevalue("vllm"), request.getfixturevalue("wide")
    else:
        engine, policies = make(request.param), tinies
    await engine.load(policies[0].policy, policies[0].path)
    yield Bench(engine, *policies)
    await (settle(engine) if request.param == "vllm" else engine.close())
