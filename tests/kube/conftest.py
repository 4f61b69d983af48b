"""A namespace with a kubelet on the real API server, for each test that asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.worlds.kube import ControlPlane
from tests.worlds.platform import Platform, platform


@pytest.fixture
async def scene(kubernetes: ControlPlane) -> AsyncIterator[Platform]:
    async with platform(kubernetes) as found:
        yield found
