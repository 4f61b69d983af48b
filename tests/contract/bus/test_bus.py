"""What every broker keeps to: the fake and the real one alike."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence

import pytest

from ebbtide import streams
from ebbtide.errors import DeadlineExceeded, Fenced, Refused
from ebbtide.ports import Bus, Consumer, Delivery, FactMessage

from .conftest import Parties

SOON = 5.0
NOW = 0.3


async def echo(data: bytes) -> bytes:
    return b"echo " + data


async def drain(consumer: Consumer, count: int) -> list[Delivery]:
    """Fetch until `count` deliveries came, or none came for long."""
    got: list[Delivery] = []
    while len(got) < count:
        more = await consumer.fetch(count - len(got), SOON)
        if not more:
            break
        got += more
    return got


async def drain_until(consumer: Consumer, last: bytes) -> list[bytes]:
    """Payloads up to `last`; what was acknowledged a moment ago may still come before it."""
    got: list[bytes] = []
    async with asyncio.timeout(SOON):
        while not got or got[-1] != last:
            got += payloads(await consumer.fetch(1, SOON))
    return got


def payloads(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.data for delivery in deliveries]


async def publish(parties: Parties, *names: str) -> None:
    subject = streams.fact(parties.uid, 1, "finished")
    for name in names:
        await parties.decode.publish_fact(subject, name.encode(), f"{parties.uid}/{name}")


async def facts(parties: Parties, epoch: int = 1) -> Consumer:
    return await parties.planner.consume(
        streams.FACTS,
        streams.holder(parties.uid, epoch),
        streams.facts(parties.uid),
        replaces=streams.holders(parties.uid),
    )


async def scorer(parties: Parties) -> Consumer:
    subject = streams.scoring(parties.uid)
    return await parties.reward.consume(streams.SCORING, streams.scorers(parties.uid), subject)


# --- requests -----------------------------------------------------------------------------------


async def test_a_request_is_answered(parties: Parties) -> None:
    subject = streams.actor(parties.uid, "a0")
    async with parties.decode.serve(subject, echo):
        assert await parties.planner.request(subject, b"hello", SOON) == b"echo hello"


async def test_a_request_that_nobody_serves_ends(parties: Parties) -> None:
    with pytest.raises(DeadlineExceeded):
        await parties.planner.request(streams.actor(parties.uid, "none"), b"", NOW)


async def test_a_request_without_an_answer_ends_at_its_deadline(parties: Parties) -> None:
    async def silent(data: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    subject = streams.actor(parties.uid, "a0")
    async with parties.decode.serve(subject, silent):
        with pytest.raises(DeadlineExceeded):
            await parties.planner.request(subject, b"", NOW)


async def test_requests_are_answered_in_order(parties: Parties) -> None:
    seen: list[bytes] = []

    async def remember(data: bytes) -> bytes:
        await asyncio.sleep(0.001 if data == b"0" else 0)
        seen.append(data)
        return b""

    subject = streams.actor(parties.uid, "a0")
    async with parties.decode.serve(subject, remember):
        asks = (parties.planner.request(subject, str(i).encode(), SOON) for i in range(20))
        await asyncio.gather(*asks)
    assert seen == [str(i).encode() for i in range(20)]


async def test_a_closed_service_answers_no_more(parties: Parties) -> None:
    subject = streams.actor(parties.uid, "a0")
    async with parties.decode.serve(subject, echo):
        await parties.planner.request(subject, b"", SOON)
    with pytest.raises(DeadlineExceeded):
        await parties.planner.request(subject, b"", NOW)


async def test_a_handler_that_raises_ends_its_service(parties: Parties) -> None:
    async def broken(data: bytes) -> bytes:
        raise ZeroDivisionError

    async def serve_broken() -> None:
        async with parties.decode.serve(subject, broken):
            await asyncio.Event().wait()

    subject = streams.actor(parties.uid, "a0")
    service = asyncio.create_task(serve_broken())
    while not service.done():  # who asks before it listens is not heard
        with pytest.raises(DeadlineExceeded):
            await parties.planner.request(subject, b"", NOW)
        await asyncio.sleep(0.01)
    with pytest.raises(ExceptionGroup) as group:
        await service
    assert group.group_contains(ZeroDivisionError)


async def test_an_oversized_message_is_refused(parties: Parties) -> None:
    big = bytes(streams.MAX_MESSAGE_BYTES + 1)
    subject = streams.fact(parties.uid, 1, "finished")
    with pytest.raises(Refused, match="blob reference"):
        await parties.planner.request(streams.actor(parties.uid, "a0"), big, NOW)
    with pytest.raises(Refused, match="blob reference"):
        await parties.decode.publish_fact(subject, big, "x")


# --- beats --------------------------------------------------------------------------------------


async def first(beats: AsyncIterator[bytes], count: int) -> list[bytes]:
    async with asyncio.timeout(SOON):
        return [await anext(beats) for _ in range(count)]


async def test_beats_are_heard_by_wildcard(parties: Parties) -> None:
    async with parties.planner.beats(streams.beats(parties.uid)) as beats:
        for name in ("a0", "a1"):
            await parties.decode.beat(streams.beat(parties.uid, "decode", name), name.encode())
        assert await first(beats, 2) == [b"a0", b"a1"]


async def test_a_beat_that_nobody_hears_is_gone(parties: Parties) -> None:
    subject = streams.beat(parties.uid, "decode", "a0")
    async with parties.planner.beats(streams.beats(parties.uid)) as beats:
        await parties.decode.beat(subject, b"early")
        assert await first(beats, 1) == [b"early"]
    async with parties.planner.beats(streams.beats(parties.uid)) as beats:
        await parties.decode.beat(subject, b"late")
        assert await first(beats, 1) == [b"late"]


# --- facts --------------------------------------------------------------------------------------


async def test_facts_wait_for_their_consumer(parties: Parties) -> None:
    await publish(parties, "a", "b", "c")
    got = await drain(await facts(parties), 3)
    assert payloads(got) == [b"a", b"b", b"c"]
    assert got[0].subject == streams.fact(parties.uid, 1, "finished")
    assert not got[0].redelivered


async def test_facts_of_other_jobs_are_not_seen(parties: Parties) -> None:
    await parties.decode.publish_fact(streams.fact("other", 1, "cut"), b"x", parties.uid)
    assert await (await facts(parties)).fetch(10, NOW) == []


async def test_a_repeated_fact_is_absorbed(parties: Parties) -> None:
    await publish(parties, "a", "a", "b")
    assert payloads(await drain(await facts(parties), 2)) == [b"a", b"b"]


async def test_many_facts_go_out_at_once(parties: Parties) -> None:
    subject = streams.fact(parties.uid, 1, "finished")
    many = [FactMessage(subject, b"%d" % i, f"{parties.uid}/{i}") for i in range(500)]
    await parties.decode.publish_facts(many)
    got = await drain(await facts(parties), 500)
    assert sorted(payloads(got)) == sorted(fact.data for fact in many)


async def test_an_empty_fetch_ends_at_its_timeout(parties: Parties) -> None:
    assert await (await facts(parties)).fetch(10, NOW) == []


async def test_a_fetch_waits_for_what_comes(parties: Parties) -> None:
    consumer = await facts(parties)
    waiting = asyncio.create_task(consumer.fetch(10, SOON))
    await asyncio.sleep(0.05)
    await publish(parties, "late")
    assert payloads(await waiting) == [b"late"]


async def test_a_refused_delivery_comes_again(parties: Parties) -> None:
    await publish(parties, "a")
    consumer = await facts(parties)
    (delivery,) = await drain(consumer, 1)
    await delivery.nak()
    (again,) = await drain(consumer, 1)
    assert again.data == b"a"
    assert again.redelivered


async def test_a_later_holder_gets_at_once_what_the_dead_one_left(parties: Parties) -> None:
    await publish(parties, "a", "b", "c")
    dead = await facts(parties, epoch=1)
    await dead.ack((await drain(dead, 3))[:1])
    heir = await facts(parties, epoch=2)
    assert await drain_until(heir, b"c") in ([b"b", b"c"], [b"a", b"b", b"c"])


async def test_a_replaced_holder_is_fenced(parties: Parties) -> None:
    zombie = await facts(parties, epoch=1)
    await facts(parties, epoch=2)
    with pytest.raises(Fenced):
        await zombie.fetch(10, SOON)
    with pytest.raises(Fenced):
        await facts(parties, epoch=1)


async def test_a_holder_that_opens_again_goes_on(parties: Parties) -> None:
    await publish(parties, "a", "b")
    consumer = await facts(parties)
    await consumer.ack(await drain(consumer, 2))
    await consumer.close()
    assert await (await facts(parties)).fetch(10, NOW) == []


async def test_closing_hands_back_what_was_not_acknowledged(parties: Parties) -> None:
    await publish(parties, "a")
    consumer = await facts(parties)
    await drain(consumer, 1)
    await consumer.close()
    assert payloads(await drain(await facts(parties), 1)) == [b"a"]


async def test_trimming_drops_only_what_was_acknowledged(parties: Parties) -> None:
    await publish(parties, "a", "b", "c")
    consumer = await facts(parties)
    got = await drain(consumer, 3)
    await consumer.ack([got[0], got[2]])
    async with asyncio.timeout(SOON):
        while await left(parties) != [b"b", b"c"]:
            await consumer.trim()


async def left(parties: Parties) -> list[bytes]:
    """What a new consumer of the job's facts is given."""
    name = f"look-{parties.uid}-{secrets.token_hex(4)}"
    fresh = await parties.planner.consume(streams.FACTS, name, streams.facts(parties.uid))
    return await drain_until(fresh, b"c")


# --- work queue ---------------------------------------------------------------------------------


async def ask_scores(bus: Bus, uid: str, count: int) -> None:
    subject = streams.scoring(uid)
    await bus.publish_facts(
        [FactMessage(subject, b"%d" % i, f"{uid}/score/{i}") for i in range(count)]
    )


async def test_scorers_share_the_work(parties: Parties) -> None:
    await ask_scores(parties.planner, parties.uid, 8)
    one, two = await scorer(parties), await scorer(parties)
    got = [*await drain(one, 4), *await drain(two, 4)]
    assert sorted(payloads(got)) == [b"%d" % i for i in range(8)]


async def test_work_in_hand_is_not_given_to_another(parties: Parties) -> None:
    await ask_scores(parties.planner, parties.uid, 1)
    one, two = await scorer(parties), await scorer(parties)
    (work,) = await drain(one, 1)
    await work.in_progress()
    assert await two.fetch(1, NOW) == []


async def test_work_of_a_closed_scorer_goes_to_another(parties: Parties) -> None:
    await ask_scores(parties.planner, parties.uid, 1)
    one, two = await scorer(parties), await scorer(parties)
    await drain(one, 1)
    await one.close()
    assert payloads(await drain(two, 1)) == [b"0"]
