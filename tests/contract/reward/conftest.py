from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from ebbtide import logs
from ebbtide.spec import RewardSpec
from services.reward.engine.frames import Setup
from services.reward.engine.pool import Pool, PoolSettings

OBEDIENT = {
    "type": "function",
    "name": "f",
    "entry_point": "ebbtide.testing.rewards:obedient",
}
OpenPool = Callable[..., AbstractAsyncContextManager[Pool]]


@pytest.fixture
def open_pool() -> OpenPool:
    @asynccontextmanager
    async def opened(
        *components: Any, workers: int = 1, seconds: float = 30
    ) -> AsyncIterator[Pool]:
        spec = RewardSpec.model_validate(
            {"components": tuple(components or (OBEDIENT,))}, strict=False
        )
        setup = Setup(spec.model_dump_json().encode(), 1 << 30, seconds)
        settings = PoolSettings(workers=workers, limit_seconds=seconds)
        pool = Pool(setup=setup, settings=settings, log=logs.setup("info", stream=io.StringIO()))
        async with pool.running():
            yield pool

    return opened
