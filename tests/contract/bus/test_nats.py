"""What only the real broker can show: rights, loss of the connection, loss of its storage."""

import asyncio
import gc
import io
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from ebbtide import logs, streams
from ebbtide.adapters.embedded import Credentials, EmbeddedServers
from ebbtide.adapters.nats import NatsBus, open_bus
from ebbtide.errors import DeadlineExceeded, Permanent, Refused, Temporary
from ebbtide.ports import Consumer, FactMessage

from .conftest import connected

T = TypeVar("T")
SOON = 10.0
FACT = FactMessage(streams.fact("u", 1, "finished"), b"fact", "u/1")


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[EmbeddedServers]:
    """Servers that the test may kill."""
    async with EmbeddedServers(folder=tmp_path) as servers:
        yield servers


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def eventually(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again while the failure is temporary."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await attempt()
            except Temporary:
                await asyncio.sleep(0.05)


async def facts(bus: NatsBus) -> Consumer:
    name = streams.holder("u", 1)
    return await bus.consume(streams.FACTS, name, streams.facts("u"), streams.holders("u"))


async def test_facts_outlive_a_crash_of_the_broker(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    planner = await connected(stack, own, "planner")
    consumer = await facts(planner)
    decode = await connected(stack, own, "decode")
    await decode.publish_facts([FACT])
    await own.nats.kill()
    await own.nats.start()
    (delivery,) = await consumer.fetch(1, SOON)
    assert delivery.data == b"fact"


async def test_an_emptied_broker_is_furnished_again(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    planner = await connected(stack, own, "planner")
    decode = await connected(stack, own, "decode")
    consumer = await facts(planner)
    waiting = asyncio.create_task(consumer.fetch(1, 2 * SOON))
    await own.empty_nats()
    await eventually(lambda: decode.publish_facts([FACT]))
    (delivery,) = await waiting
    assert delivery.data == b"fact"


async def test_a_work_queue_is_furnished_again_too(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    planner = await connected(stack, own, "planner")
    reward = await connected(stack, own, "reward")
    scorer = await reward.consume(streams.SCORING, streams.scorers("u"), streams.scoring("u"))
    await own.empty_nats()
    work = FactMessage(streams.scoring("u"), b"work", "u/s/1")
    await eventually(lambda: planner.publish_facts([work]))
    (delivery,) = await scorer.fetch(1, SOON)
    assert delivery.data == b"work"


async def test_without_a_broker_nothing_hangs(own: EmbeddedServers, stack: AsyncExitStack) -> None:
    planner = await connected(stack, own, "planner")
    consumer = await facts(planner)
    await own.nats.kill()
    async with asyncio.timeout(SOON):
        while planner.connected:
            await asyncio.sleep(0.01)
        await planner.beat("h.u.planner.p", b"")
        assert await consumer.fetch(1, 0.1) == []
        with pytest.raises(DeadlineExceeded):
            await planner.request("c.u.decode.a", b"", 0.1)
        with pytest.raises(Temporary, match="broker is lost"):
            await planner.publish_facts([FACT])


async def test_facts_under_way_fail_as_soon_as_the_broker_is_lost(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    decode = await connected(stack, own, "decode", answer_seconds=1000.0)
    os.kill(own.nats.pid, signal.SIGSTOP)
    publishing = asyncio.create_task(decode.publish_facts([FACT]))
    await asyncio.sleep(0.05)
    await own.nats.kill()
    # On a slow machine they may reach the next broker, before it has its streams again.
    with pytest.raises(Temporary, match=r"broker was lost|no stream takes it"):
        await publishing


async def test_services_and_beats_go_on_after_a_crash(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    planner = await connected(stack, own, "planner")
    decode = await connected(stack, own, "decode")

    async def answer(data: bytes) -> bytes:
        return b"yes"

    async with (
        decode.serve("c.u.decode.a", answer),
        planner.beats(streams.beats("u")) as beats,
    ):
        await own.nats.kill()
        await own.nats.start()
        ask = lambda: planner.request("c.u.decode.a", b"", 0.5)  # noqa: E731
        assert await eventually(ask) == b"yes"
        await decode.beat("h.u.decode.a", b"beat")
        async with asyncio.timeout(SOON):
            assert await anext(beats) == b"beat"


async def test_only_the_planner_may_command_actors_and_ask_for_scores(
    servers: EmbeddedServers, stack: AsyncExitStack
) -> None:
    decode = await connected(stack, servers, "decode")
    reward = await connected(stack, servers, "reward")

    async def answer(data: bytes) -> bytes:
        return b"yes"

    async with decode.serve("c.rights.decode.a", answer):
        with pytest.raises(DeadlineExceeded):
            await reward.request("c.rights.decode.a", b"", 0.3)


@pytest.mark.parametrize(
    ("role", "kind", "allowed"),
    [
        ("decode", "finished", True),
        ("decode", "score", False),
        ("reward", "score", True),
        ("reward", "finished", False),
        ("learner", "finished", False),
    ],
)
async def test_each_role_states_its_own_facts_only(
    servers: EmbeddedServers, stack: AsyncExitStack, role: str, kind: str, allowed: bool
) -> None:
    await connected(stack, servers, "planner")
    bus = await connected(stack, servers, role, answer_seconds=5.0 if allowed else 0.3)
    fact = FactMessage(streams.fact("rights", 1, kind), b"", f"rights/{role}/{kind}")
    if allowed:
        await bus.publish_facts([fact])
    else:
        with pytest.raises(Temporary, match="no answer in time"):
            await bus.publish_facts([fact])


async def test_a_wrong_password_is_refused(servers: EmbeddedServers) -> None:
    log = logs.setup("error", stream=io.StringIO())
    opening = open_bus(servers.nats_url, user="decode", password="wrong", log=log)
    with pytest.raises(Refused, match="broker denies user 'decode'"):
        await opening.__aenter__()


async def test_an_absent_broker_is_temporary() -> None:
    log = logs.setup("error", stream=io.StringIO())
    with pytest.raises(Temporary, match="no broker answers"):
        await open_bus("nats://127.0.0.1:1", deadline=0.3, log=log).__aenter__()


async def test_a_full_stream_is_temporary_and_says_so(
    own: EmbeddedServers, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = streams.StreamSpec(streams.FACTS, ("f.>",), "limits", 2000, 3600.0, 120.0)
    monkeypatch.setattr(streams, "STREAMS", (small,))
    await connected(stack, own, "planner")
    decode = await connected(stack, own, "decode")
    many = [FactMessage(FACT.subject, bytes(500), f"u/{i}") for i in range(10)]
    with pytest.raises(Temporary, match="of 10 facts not stored: maximum bytes exceeded"):
        await decode.publish_facts(many)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_broker_that_turns_us_away_later_is_permanent(
    own: EmbeddedServers, stack: AsyncExitStack
) -> None:
    planner = await connected(stack, own, "planner")
    consumer = await facts(planner)
    await own.nats.kill()
    changed = dict.fromkeys(own.credentials.nats, "changed")
    own.credentials = Credentials(nats=changed, valkey=own.credentials.valkey)
    await own.nats.start()
    with pytest.raises(Permanent, match="broker denies us now"):
        await consumer.fetch(1, SOON)
    with pytest.raises(Permanent):
        await planner.publish_facts([FACT])
    gc.collect()  # nats-py leaves the sockets of denied attempts to the collector, which warns
