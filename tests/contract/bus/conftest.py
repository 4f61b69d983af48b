"""The broker as its users see it: on the real one each role has a connection of its own."""

import io
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from ebbtide import logs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.nats import NatsBus, open_bus
from ebbtide.ports import Bus
from ebbtide.testing.bus import FakeBus

_UIDS = itertools.count()


class Parties:
    """One bus per role, and a job uid that no other test uses."""

    def __init__(self, *, planner: Bus, decode: Bus, reward: Bus) -> None:
        self.planner = planner
        self.decode = decode
        self.reward = reward
        self.uid = f"job-{next(_UIDS)}"


async def connected(
    stack: AsyncExitStack, servers: EmbeddedServers, role: str, answer_seconds: float = 5.0
) -> NatsBus:
    opening = open_bus(
        servers.nats_url,
        user=role,
        password=servers.credentials.nats[role],
        manage=role == "planner",
        answer_seconds=answer_seconds,
        log=logs.setup("error", stream=io.StringIO()),
    )
    return await stack.enter_async_context(opening)


@pytest.fixture(params=["fake", "nats"])
async def parties(request: pytest.FixtureRequest) -> AsyncIterator[Parties]:
    if request.param == "fake":
        bus = FakeBus(clock=SystemClock())
        yield Parties(planner=bus, decode=bus, reward=bus)
        return
    servers: EmbeddedServers = request.getfixturevalue("servers")
    async with AsyncExitStack() as stack:
        planner = await connected(stack, servers, "planner")
        decode = await connected(stack, servers, "decode")
        reward = await connected(stack, servers, "reward")
        yield Parties(planner=planner, decode=decode, reward=reward)
