"""An actor in a later turn of an episode: from what was given, with the mask to the end."""

from __future__ import annotations

import math
from typing import Any

from ebbtide.wire import (
    CutSamples,
    Failed,
    Finished,
    Journal,
    Ref,
    Rollout,
    Span,
    decode,
    encode,
    pack_floats,
    pack_ints,
)
from tests.worlds.decoding import running


async def rollout(stand: Any, fact: Finished) -> Rollout:
    return decode(await stand.blobs.fetch(fact.ref), Rollout)


async def given_after(stand: Any, n: int) -> Ref:
    """What a second turn begins from: `n` drawn tokens and two that were given."""
    policy = (await stand.job.publish(0))[0]
    logprobs = pack_floats([-1.0] * n + [math.nan] * 2)
    text = Journal(0, pack_ints([9] * (n + 2)), logprobs, (Span(0, n, policy),))
    return await stand.blobs.put("given", encode(text))


def test_a_later_turn_goes_on_from_what_was_given_with_its_mask(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy, given = await job.load("a0"), await given_after(stand, 4)
            await job.submit("a0", await job.assign(1, policy, given=given, turn=1))
            fact = await job.fact()
            whole = await rollout(stand, fact)
            assert list(whole.action_mask) == [1] * 4 + [0] * 2 + [1] * 34
            assert whole.spans == (Span(0, 4, policy), Span(6, 40, policy))
            assert (fact.n_tokens, fact.n_given) == (38, 2)

    run(scenario)


def test_the_journal_of_a_later_turn_stands_by_itself_mask_and_all(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor("a0"), stand.actor("a1"):
            policy, given = await job.load("a0"), await given_after(stand, 4)
            turn = await job.assign(1, policy, given=given, turn=1)
            await job.submit("a0", turn)
            await job.beat("a0", lambda beat: running(beat).get(1, 0) >= 10)
            await job.command("a0", CutSamples(job.fence, (turn.dispatch,)))
            cut = await job.fact()
            await job.load("a1")
            again = {"sample": 1, "given": given, "turn": 1}
            await job.submit("a1", await job.assign(2, policy, resume=cut.journal, **again))
            resumed = await rollout(stand, await job.fact())
            assert list(resumed.action_mask) == [1] * 4 + [0] * 2 + [1] * 34

    run(scenario)


def test_a_turn_whose_beginning_is_not_there_fails_its_sample(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        job = stand.job
        async with stand.actor():
            policy, given = await job.load("a0"), Ref("nowhere", "0" * 64, 1)
            await job.submit("a0", await job.assign(1, policy, given=given, turn=1))
            fact = await job.fact()
            assert isinstance(fact, Failed)
            assert (fact.code, "what the turn begins from" in fact.detail) == ("prompt", True)

    run(scenario)
