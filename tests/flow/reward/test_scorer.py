"""From a request in the queue to a verdict in the stream, whatever happens between."""

from __future__ import annotations

import asyncio
from typing import Any

from ebbtide import streams
from ebbtide.wire import Error, Value


def test_every_request_becomes_one_verdict_and_is_acknowledged(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask_all("a", "bb", "ccc")
        async with stand.scorer():
            await stand.clock.sleep(1)
            assert stand.waiting == 0
        assert {f.key.index: f.score.total for f in stand.facts} == {0: 1.0, 1: 2.0, 2: 3.0}
        assert {(f.scorer, f.scorer_digest) for f in stand.facts} == {("pod", "digest")}

    run(scenario)


def test_a_scorer_sees_the_answer_without_the_token_that_ended_it(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask(await stand.request(0, "ab</answer>"))
        await stand.ask(await stand.request(1, "ab<eos>"))
        await stand.ask(await stand.request(2, "ab</answer>", finish="length"))
        async with stand.scorer():
            await stand.clock.sleep(1)
        assert sorted(stand.judged) == ["ab", "ab", "ab</answer>"]

    run(scenario)


def test_the_same_rollout_is_judged_once(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        request = await stand.request(0, "a")
        async with stand.scorer():
            for attempt in (0, 1):
                await stand.ask(request, attempt)
                await stand.clock.sleep(1)
        assert (stand.judged, len(stand.facts), stand.waiting) == (["a"], 1, 0)

    run(scenario)


def test_a_request_waits_until_its_verdict_is_held_by_the_broker(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask_all("3")
        async with stand.scorer():
            await stand.clock.sleep(1)
            stand.bus.connected = False
            await stand.clock.sleep(9)
            assert stand.waiting == 1
            stand.bus.connected = True
            await stand.clock.sleep(9)
        assert (stand.waiting, len(stand.facts)) == (0, 1)

    run(scenario)


def test_long_work_is_not_given_to_another(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        ack_wait = streams.CONSUMERS[streams.SCORING].ack_wait
        await stand.ask_all(str(int(3 * ack_wait)))
        async with stand.scorer():
            await stand.clock.sleep(4 * ack_wait)
        assert len(stand.judged) == len(stand.facts) == 1

    run(scenario)


def test_what_stays_missing_is_an_error_after_its_tries(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        request = await stand.request(0, "a")
        await stand.blobs.delete(request.rollout.path)
        await stand.ask(request)
        await stand.ask(await stand.request(1, "b"))
        async with stand.scorer():
            await stand.clock.sleep(5)
        scores = {f.key.index: f.score for f in stand.facts}
        assert isinstance(scores[0], Error)
        assert scores[0].error_class == "NotFound"
        assert isinstance(scores[1], Value)
        assert (
            stand.registry.get_sample_value("ebbtide_reward_errors_total", {"class": "NotFound"})
            == 3.0
        )

    run(scenario)


def test_a_short_outage_costs_nothing(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask_all("a")
        stand.blobs.away = True
        async with stand.scorer():
            await stand.clock.sleep(0.04)
            stand.blobs.away = False
            await stand.clock.sleep(2)
        assert [f.score.total for f in stand.facts] == [1.0]

    run(scenario)


def test_a_long_outage_stops_the_intake_and_loses_nothing(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.blobs.away = False
        await stand.ask_all(*("abcdefgh"))
        stand.blobs.away = True
        async with stand.scorer():
            await stand.clock.sleep(1)
            assert stand.breaker.open
            assert (stand.waiting, stand.facts) == (8, [])
            stand.blobs.away = False
            await stand.clock.sleep(30)
        assert {f.score.total for f in stand.facts} == {1.0}
        assert (len(stand.facts), stand.waiting) == (8, 0)

    run(scenario)


def test_an_outage_without_end_becomes_errors_and_never_zeros(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask_all("a", "b")
        stand.blobs.away = True
        async with stand.scorer():
            await stand.clock.sleep(1000)
        assert [type(f.score) for f in stand.facts] == [Error, Error]

    run(scenario)


def test_a_malformed_request_is_dropped_aloud(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.bus.publish_fact(streams.scoring("job-1"), b"junk", "junk")
        await stand.ask_all("a")
        async with stand.scorer():
            await stand.clock.sleep(1)
        assert (len(stand.facts), stand.waiting) == (1, 0)
        assert "request dropped: malformed" in stand.said.getvalue()

    run(scenario)


def test_a_drain_finishes_what_it_can_and_hands_the_rest_to_another(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        await stand.ask_all("1", "60")
        async with stand.scorer(drain_seconds=5):
            await stand.clock.sleep(0.5)
        assert [f.key.index for f in stand.facts] == [0]
        async with stand.scorer():
            await stand.clock.sleep(61)
        assert [f.key.index for f in stand.facts] == [0, 1]

    run(scenario)


def test_another_sample_in_the_rollouts_place_is_never_scored(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        one, other = await stand.request(0, "a"), await stand.request(1, "b")
        await stand.ask(type(one)(one.key, 1, other.rollout, one.prompt_id, one.prompt_ref))
        async with stand.scorer():
            await asyncio.sleep(5)
        assert [type(f.score) for f in stand.facts] == [Error]

    run(scenario)
