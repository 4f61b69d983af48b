"""The fake broker misbehaves exactly as it is told."""

import asyncio
from random import Random

import pytest

from ebbtide import streams
from ebbtide.errors import DeadlineExceeded, Temporary
from ebbtide.ports import Consumer, FactMessage
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.chaos import Chaos
from ebbtide.testing.clock import VirtualClock, run_virtual

SUBJECT = streams.fact("u", 1, "finished")


def bad_bus(seed: int = 0, **faults: float) -> FakeBus:
    return FakeBus(clock=VirtualClock(), chaos=Chaos(Random(seed), **faults))  # noqa: S311


async def consumer(bus: FakeBus, epoch: int = 1) -> Consumer:
    name = streams.holder("u", epoch)
    return await bus.consume(streams.FACTS, name, streams.facts("u"), streams.holders("u"))


def test_a_lost_request_ends_at_its_deadline() -> None:
    async def scenario() -> float:
        bus = bad_bus(lose=1.0)
        async with bus.serve("c", lambda data: asyncio.sleep(0, data)):
            with pytest.raises(DeadlineExceeded):
                await bus.request("c", b"", 3.0)
        return VirtualClock().now()

    assert run_virtual(scenario()) == 3.0


def test_a_repeated_request_is_handled_twice() -> None:
    async def scenario() -> int:
        bus = bad_bus(repeat=1.0)
        seen: list[bytes] = []

        async def handle(data: bytes) -> bytes:
            seen.append(data)
            return data

        async with bus.serve("c", handle):
            await bus.request("c", b"x", 3.0)
            await asyncio.sleep(1)
        return len(seen)

    assert run_virtual(scenario()) == 2


def test_delayed_beats_overtake_each_other() -> None:
    async def scenario() -> list[bytes]:
        bus = bad_bus(delay=1.0)
        async with bus.beats("h.>") as beats:
            for number in range(10):
                await bus.beat("h.u.decode.a", bytes([number]))
            return [await anext(beats) for _ in range(10)]

    got = run_virtual(scenario())
    assert sorted(got) == [bytes([number]) for number in range(10)]
    assert got != sorted(got)


def test_what_is_not_acknowledged_comes_again_after_its_wait() -> None:
    async def scenario() -> float:
        bus = bad_bus()
        facts = await consumer(bus)
        await bus.publish_fact(SUBJECT, b"x", "x")
        await facts.fetch(1, 1.0)
        (again,) = await facts.fetch(1, 100.0)
        assert again.redelivered
        return VirtualClock().now()

    assert run_virtual(scenario()) == streams.CONSUMERS[streams.FACTS].ack_wait


def test_a_repetition_after_the_dedup_window_is_stored_again() -> None:
    async def scenario() -> int:
        bus = bad_bus()
        for _ in range(2):
            await bus.publish_fact(SUBJECT, b"x", "x")
            await asyncio.sleep(121)
        return len(await (await consumer(bus)).fetch(10, 1.0))

    assert run_virtual(scenario()) == 2


def test_an_emptied_broker_takes_facts_once_its_consumer_is_back() -> None:
    async def scenario() -> None:
        bus = bad_bus()
        facts = await consumer(bus)
        bus.empty()
        with pytest.raises(Temporary):
            await bus.publish_fact(SUBJECT, b"x", "x")
        assert await facts.fetch(1, 1.0) == []
        await bus.publish_fact(SUBJECT, b"x", "x")
        (delivery,) = await facts.fetch(1, 1.0)
        assert delivery.data == b"x"

    run_virtual(scenario())


def test_without_a_broker_facts_fail_and_fetches_wait() -> None:
    async def scenario() -> None:
        bus = bad_bus()
        facts = await consumer(bus)
        bus.connected = False
        with pytest.raises(Temporary):
            await bus.publish_fact(SUBJECT, b"x", "x")
        assert await facts.fetch(1, 5.0) == []
        assert VirtualClock().now() == 5.0

    run_virtual(scenario())


def test_a_full_stream_refuses_facts() -> None:
    async def scenario() -> None:
        bus = bad_bus()
        big = [FactMessage(SUBJECT, bytes(1 << 18), str(i)) for i in range(4097)]
        with pytest.raises(Temporary, match="1 of 4097"):
            await bus.publish_facts(big)

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(10))
def test_stubborn_publishers_and_a_careful_consumer_lose_nothing(seed: int) -> None:
    async def scenario() -> None:
        bus = bad_bus(seed, lose=0.3, repeat=0.3, delay=0.5)
        facts = await consumer(bus)
        seen: set[bytes] = set()

        async def publish(number: int) -> None:
            while True:
                try:
                    return await bus.publish_fact(SUBJECT, b"%d" % number, str(number))
                except Temporary:
                    await asyncio.sleep(1)

        async def consume() -> None:
            while len(seen) < 50:
                got = await facts.fetch(10, 5.0)
                seen.update(delivery.data for delivery in got)
                await facts.ack(got)

        await asyncio.gather(consume(), *(publish(number) for number in range(50)))

    run_virtual(scenario())


def test_the_same_seed_gives_the_same_history() -> None:
    async def scenario() -> list[bytes]:
        bus = bad_bus(5, lose=0.2, repeat=0.3, delay=1.0)
        async with bus.beats("h.>") as beats:
            for number in range(50):
                await bus.beat("h.u.decode.a", bytes([number]))
            heard: list[bytes] = []
            while True:
                try:
                    async with asyncio.timeout(5):
                        heard.append(await anext(beats))
                except TimeoutError:
                    return heard

    assert run_virtual(scenario()) == run_virtual(scenario())
