"""From an accepted turn to the environment's reply in the stream, or to a score."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ebbtide.rewards.outcomes import Answer, Broken, Judged, Message, Reply, Unusable
from ebbtide.testing.rollouts import a_rollout
from ebbtide.turns import mask_of
from ebbtide.wire import (
    Error,
    Invalid,
    Journal,
    Rollout,
    SampleKey,
    Span,
    Value,
    decode,
    pack_floats,
    pack_ints,
    pack_mask,
    unpack_ints,
)
from services.reward import core

UID = "job-1"


class Environment:
    """Says what the test wants, and keeps what it was asked."""

    def __init__(self, *says: Any) -> None:
        self.says, self.asked = list(says), list[Answer]()

    async def __call__(self, answer: Answer) -> core.Verdict:
        self.asked.append(answer)
        said = self.says.pop(0)
        return said if not isinstance(said, str | None) else Judged((Reply(said),), (0.0,))


def a_turn(stand: Any, text: str, **changes: Any) -> Rollout:
    return a_rollout(stand.tokenizer.encode(text).ids, uid=UID, **changes)


def after(first: Rollout, given: Journal, turn: list[int]) -> Rollout:
    """The rollout of the next turn, as an actor makes it."""
    begun = len(given.tokens) // 4
    spans = (*given.spans, Span(begun, begun + len(turn), first.spans[0].policy))
    return structs.replace(
        first,
        key=structs.replace(first.key, turn=first.key.turn + 1),
        tokens=given.tokens + pack_ints(turn),
        logprobs=given.logprobs + pack_floats([0.0] * len(turn)),
        spans=spans,
        action_mask=pack_mask(mask_of(spans, begun + len(turn))),
    )


async def asked(stand: Any, rollout: Rollout, **row: Any) -> None:
    await stand.ask_about(rollout, **row)
    async with stand.scorer():
        await stand.clock.sleep(30)


def test_a_reply_goes_on_from_the_very_tokens_that_were_drawn(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment("ab")
        turn = a_turn(stand, "cd</answer>")
        await asked(stand, turn, frame=(pack_ints([9]), pack_ints([10, 11])))
        [ready] = stand.turns
        text = decode(await stand.blobs.fetch(ready.given), Journal)
        reply = stand.tokenizer.encode("ab").ids
        assert unpack_ints(text.tokens).tolist() == [
            *unpack_ints(turn.tokens), 9, *reply, 10, 11,
        ]  # fmt: skip
        assert (ready.n_tokens, stand.facts, stand.waiting) == (len(text.tokens) // 4, [], 0)

    run(scenario)


def test_the_last_turn_is_what_is_scored_and_the_environment_saw_all(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment("ab", None)
        frame = (pack_ints([9]), pack_ints([10]))
        first = a_turn(stand, "cd</answer>")
        await asked(stand, first, frame=frame)
        given = decode(await stand.blobs.fetch(stand.turns[0].given), Journal)
        last = after(first, given, stand.tokenizer.encode("efg</answer>").ids)
        await asked(stand, last, frame=frame)
        told = [("assistant", "cd"), ("user", "ab"), ("assistant", "efg")]
        assert stand.environment.asked[-1].transcript == tuple(Message(*one) for one in told)
        assert stand.judged == ["efg"]
        assert [fact.score.total for fact in stand.facts] == [3.0]

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [({"finish": "length"}, 64), ({}, 4)],
)
def test_an_episode_without_room_for_another_turn_is_scored(
    run: Any, changes: dict[str, Any], limit: int
) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment, stand.response_tokens = Environment("ab"), limit
        await asked(stand, a_turn(stand, "cd", **changes))
        assert (stand.turns, [fact.score.total for fact in stand.facts]) == ([], [2.0])

    run(scenario)


def test_after_the_last_turn_the_environment_is_not_asked(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment()
        rollout = structs.replace(a_turn(stand, "cd"), key=SampleKey(UID, 0, 0, 0, 2))
        await asked(stand, rollout)
        assert (stand.environment.asked, len(stand.facts)) == ([], 1)

    run(scenario)


@pytest.mark.parametrize(
    ("says", "score"),
    [
        (Judged((Unusable("raised"),), (0.0,)), Invalid("environment: raised")),
        (core.TimedOut(), Value(0.0, (), fault="timeout")),
        ("abcdefghi", Invalid("environment: a reply of 9 tokens, maxReplyTokens is 8")),
        ("", Invalid("environment: an empty reply")),
        (core.Crashed(-9), Error("WorkerDied", "the environment ended its own worker (signal 9)")),
    ],
)
def test_an_environment_that_fails_gives_the_episode_its_score(
    run: Any, says: Any, score: object
) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment(*[says] * 3)
        await asked(stand, a_turn(stand, "cd"))
        assert (stand.turns, [fact.score for fact in stand.facts]) == ([], [score])
        assert stand.judged == []

    run(scenario)


def test_an_empty_reply_is_invalid_whatever_the_template_puts_around_it(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment("")
        await asked(stand, a_turn(stand, "cd"), frame=(pack_ints([9]), pack_ints([10])))
        assert [fact.score for fact in stand.facts] == [Invalid("environment: an empty reply")]

    run(scenario)


def test_infrastructure_that_fails_is_tried_again(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        broken = Judged((Broken("Temporary", "away"),), (0.0,))
        stand.environment = Environment(broken, core.NoWorker("none"), "ab")
        await asked(stand, a_turn(stand, "cd"))
        assert (len(stand.turns), stand.facts) == (1, [])

    run(scenario)


def test_a_store_that_takes_no_reply_is_an_error_and_never_a_reward_of_0(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment, stand.blobs.full = Environment("ab", "ab", "ab"), True
        await asked(stand, a_turn(stand, "cd"))
        assert [fact.score for fact in stand.facts] == [Error("Temporary", "the store is full")]

    run(scenario)


def test_a_scorer_that_dies_while_the_environment_works_loses_nothing(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        async def slow(_: Answer) -> core.Verdict:
            await stand.clock.sleep(60)
            return Judged((Reply("ab"),), (0.0,))

        stand.environment = slow
        await stand.ask_about(a_turn(stand, "cd"))
        async with stand.scorer(drain_seconds=0.5):
            await stand.clock.sleep(1)
        assert (stand.turns, stand.waiting) == ([], 1)
        stand.environment = Environment("ab")
        async with stand.scorer():
            await stand.clock.sleep(30)
        assert (len(stand.turns), stand.waiting) == (1, 0)

    run(scenario)


def test_what_looks_like_a_special_token_in_a_reply_is_text(run: Any) -> None:
    async def scenario(stand: Any) -> None:
        stand.environment = Environment("<eos>")
        await asked(stand, a_turn(stand, "cd"))
        text = decode(await stand.blobs.fetch(stand.turns[0].given), Journal)
        assert stand.id("<eos>") not in unpack_ints(text.tokens)[2:]

    run(scenario)
