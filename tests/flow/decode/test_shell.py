"""An actor from command to settled fact, whatever happens to what it works with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ebbtide import paths, streams
from ebbtide.errors import NotFound, Permanent, Temporary
from ebbtide.parts import place
from ebbtide.wire import (
    Counted,
    Cut,
    CutSamples,
    Failed,
    Finished,
    JournalRef,
    LoadPolicy,
    Ok,
    Refusal,
    Rollout,
    Sleep,
    Span,
    decode,
    encode,
    unpack_ints,
)
from tests.worlds.decoding import running


async def rollout(stand: Any, fact: Finished) -> Rollout:
    return decode(await stand.blobs.fetch(fact.ref), Rollout)


async def cut_midway(stand: Any, pod: str = "a0", seq: int = 0) -> Cut:
    """Submit, wait for some journalled tokens, cut."""
    job = stand.job
    policy = await job.load(pod)
    await job.submit(pod, await job.assign(seq, policy))
    await job.beat(pod, lambda beat: running(beat).get(seq, 0) >= 5)
    await job.command(pod, CutSamples(job.fence, ((await job.assign(seq, policy)).dispatch,)))
    fact = await job.fact()
    assert isinstance(fact, Cut)
    return fact


def test_a_sample_goes_from_submit_to_settled(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy = await job.load("a0")
            await job.submit("a0", await job.assign(3, policy))
            fact = await job.fact()
            assert isinstance(fact, Finished)
            whole = await rollout(stand, fact)
            assert place(fact.ref.path) == (paths.rollouts(fact.key, fact.dispatch), 0)
            assert list(unpack_ints(whole.prompt_tokens)) == [5, 6, 10]
            assert (whole.n_tokens, whole.spans) == (40, (Span(0, 40, policy),))
            await job.settle("a0", fact)
            beat = await job.beat("a0")
            assert (beat.outbox, running(beat)) == ((), {})
            assert len(stand.audit()) == 1

    run(scenario)


def test_an_actor_that_was_put_to_sleep_serves_again_once_it_is_loaded(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            await job.load("a0")
            assert isinstance(await job.command("a0", Sleep(job.fence)), Ok)
            beat = await job.beat("a0", lambda beat: beat.state == "asleep")
            assert beat.policy is None
            await job.submit("a0", await job.assign(3, await job.load("a0")))
            assert isinstance(await job.fact(), Finished)

    run(scenario)


def test_a_settled_rollout_needs_no_journal(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            await job.submit("a0", await job.assign(0, await job.load("a0")))
            fact = await job.fact()
            await stand.hot.journal(JournalRef(fact.key, fact.dispatch, 5))
            await job.settle("a0", fact)
            await asyncio.sleep(1.0)
            with pytest.raises(NotFound):
                await stand.hot.journal(JournalRef(fact.key, fact.dispatch, 5))

    run(scenario)


def test_a_cut_sample_goes_on_elsewhere_though_its_fact_was_settled_first(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor("a0"), stand.actor("a1"):
            fact = await cut_midway(stand)
            assert 5 <= fact.n_tokens < 40
            await job.settle("a0", void=(fact,))
            await asyncio.sleep(1.0)
            policy = await job.load("a1")
            await job.submit(
                "a1",
                await job.assign(1, policy, sample=0, resume=fact.journal),
                await job.assign(2, policy, sample=0),
            )
            facts = await job.facts(2)
            resumed, whole = [await rollout(stand, facts[seq]) for seq in (1, 2)]
            assert (resumed.tokens, resumed.logprobs) == (whole.tokens, whole.logprobs)
            assert resumed.spans == (Span(0, 40, policy),)

    run(scenario)


def test_a_resumed_samples_journal_stands_by_itself(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor("a0"), stand.actor("a1"):
            first = await cut_midway(stand)
            policy = await job.load("a1")
            again = await job.assign(1, policy, sample=0, resume=first.journal)
            await job.submit("a1", again)
            beat = await job.beat("a1", lambda beat: running(beat).get(1, 0) > first.n_tokens)
            await stand.hot.forget([first.journal])
            n = running(beat)[1]
            await stand.hot.journal(JournalRef(again.key, again.dispatch, n))

    run(scenario)


def test_a_lost_journal_is_told_and_not_waited_for(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            first = await cut_midway(stand)
            stand.hot.flush()
            policy = await job.load("a0")
            await job.submit("a0", await job.assign(1, policy, sample=0, resume=first.journal))
            fact = await job.fact()
            assert isinstance(fact, Failed)
            assert fact.code == "journal_lost"

    run(scenario)


@pytest.mark.parametrize(("seconds", "kind"), [(5.0, Finished), (60.0, Failed)])
def test_a_hot_store_that_is_away_is_asked_for_a_while(run: Any, seconds: float, kind: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            first = await cut_midway(stand)
            stand.hot.up = False
            policy = await job.load("a0")
            await job.submit("a0", await job.assign(1, policy, sample=0, resume=first.journal))
            await asyncio.sleep(seconds)
            stand.hot.up = True
            assert isinstance(await job.fact(), kind)

    run(scenario)


def test_samples_finish_without_a_hot_store(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy = await job.load("a0")
            stand.hot.up = False
            await job.submit("a0", await job.assign(0, policy))
            await asyncio.sleep(3.0)
            assert running(await job.beat("a0")) == {0: 0}
            assert actor.value("journal_lag_tokens") > 0
            assert isinstance(await job.fact(), Finished)

    run(scenario)


def test_a_blob_store_that_refuses_for_a_while_delays_and_loses_nothing(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy = await job.load("a0")
            samples = [await job.assign(seq, policy) for seq in range(6)]
            stand.blobs.away = True
            await job.submit("a0", *samples[:3])
            await asyncio.sleep(20.0)
            stand.blobs.away = False
            await job.submit("a0", *samples[3:])
            await job.beat("a0", lambda beat: beat.stats.running > 3)
            stand.blobs.away = True
            await asyncio.sleep(60.0)
            assert stand.bus.told == 0
            assert not actor.work.done()
            stand.blobs.away = False
            assert {type(f) for f in (await job.facts(6)).values()} == {Finished}

    run(scenario)


def test_a_prompt_that_is_not_there_fails_its_sample_alone(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy = await job.load("a0")
            await job.submit("a0", await job.assign(0, policy))
            assert isinstance(await job.fact(), Finished)
            await stand.blobs.put((await job.prompts()).path, b"junk")
        async with stand.actor("a1"):
            await job.load("a1")
            await job.submit("a1", await job.assign(1, policy))
            fact = await job.fact()
            assert isinstance(fact, Failed)
            assert fact.code == "prompt"

    run(scenario)


def test_neighbours_read_their_chunk_once(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy = await job.load("a0")
            before = stand.blobs.read
            await job.submit("a0", *[await job.assign(seq, policy) for seq in range(8)])
            await job.facts(8)
            assert stand.blobs.read == before + 1

    run(scenario)


def test_facts_come_again_every_two_seconds_until_settled(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            await job.submit("a0", await job.assign(0, await job.load("a0")))
            fact = await job.fact()
            told = stand.bus.told
            stand.bus.empty()
            await asyncio.sleep(10.0)
            assert stand.bus.told == told + 5
            assert await job.fact() == fact
            await job.settle("a0", fact)
            told = stand.bus.told
            await asyncio.sleep(10.0)
            assert stand.bus.told == told

    run(scenario)


def test_a_broker_that_is_away_gets_each_fact_once_when_it_is_back(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy = await job.load("a0")
            await job.submit("a0", *[await job.assign(seq, policy) for seq in range(4)])
            stand.bus.connected = False
            await asyncio.sleep(60.0)
            assert actor.process.health.unreadiness() == {"broker": "broker is lost"}
            stand.bus.connected = True
            assert len(await job.facts(4)) == 4

    run(scenario)


def test_a_drained_actor_hands_over_and_leaves_with_a_whole_log(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy = await job.load("a0")
            await job.submit("a0", *[await job.assign(seq, policy, n=400) for seq in range(6)])
            await job.beat("a0", lambda beat: running(beat).get(3, 0) > 5)
            actor.process.begin_drain()
            facts = await job.facts(6)
            assert {type(fact) for fact in facts.values()} == {Cut}
            for fact in facts.values():
                if fact.journal:
                    await stand.hot.journal(fact.journal)
            assert not actor.work.done()
            for fact in facts.values():
                await job.settle("a0", fact)
            last = asyncio.create_task(job.beat("a0", lambda beat: not beat.outbox))
            await actor.work
            assert Counted("loads", "loaded", 1.0) in (await last).counted
        assert len(stand.audit()) == 6

    run(scenario)


def test_an_actor_without_a_planner_ends_and_one_with_a_planner_stays(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        beating = asyncio.ensure_future(stand.planner_lives())
        async with stand.actor(orphan=30.0) as actor:
            await asyncio.sleep(100.0)
            assert not actor.work.done()
            beating.cancel()
            with pytest.raises(Temporary, match="no planner"):
                await actor.work

    run(scenario)


def test_what_is_no_command_is_refused(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        async with stand.actor() as actor:
            await stand.bus.beat(streams.planner(stand.job.uid), b"junk")
            for data in (b"", b"junk", encode({"type": "submit"})):
                reply = await stand.job.raw("a0", data)
                assert isinstance(reply, Refusal)
                assert reply.code == "invalid"
            assert not actor.work.done()

    run(scenario)


def test_a_publication_that_does_not_hold_is_reported_and_tried_again(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy, index = await job.publish(7)
            await stand.blobs.put(index.path, b"junk" * 10)
            await job.command("a0", LoadPolicy(job.fence, policy, index))
            beat = await job.beat("a0", lambda beat: beat.load_failure)
            assert (beat.state, beat.policy) == ("loading", None)
            assert "digest differs" in beat.load_failure
            await job.publish(7)
            await job.beat("a0", lambda beat: beat.policy == policy)
            assert actor.value("load_failures_total") == 1

    run(scenario)


def test_an_actor_gives_up_a_corrupt_policy_after_half_a_minute_with_its_reason(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy, index = await job.publish(7)
            await stand.blobs.put(index.path, b"junk" * 10)
            await job.command("a0", LoadPolicy(job.fence, policy, index))
            before = stand.clock.now()
            with pytest.raises(Permanent, match=r"policy 7 does not load: .* digest differs"):
                await actor.work
            assert 31.0 <= stand.clock.now() - before < 34.0
            assert actor.value("load_failures_total") == 6

    run(scenario)


def test_metrics_tell_what_was_done(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor() as actor:
            policy = await job.load("a0", 3)
            await job.submit("a0", *[await job.assign(seq, policy) for seq in range(6)])
            await job.beat("a0", lambda beat: beat.stats.running == 4)
            assert (actor.value("running_samples"), actor.value("waiting_samples")) == (4, 2)
            await job.facts(6)
            await job.beat("a0")
            assert actor.value("ended_samples_total", reason="length") == 6
            assert (actor.value("tokens_total"), actor.value("outbox_facts")) == (240, 6)
            assert (actor.value("policy_version"), actor.value("load_seconds_count")) == (3, 1)

    run(scenario)
