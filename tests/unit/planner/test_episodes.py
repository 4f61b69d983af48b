"""Turns of an episode: each is accepted once, and the next one begins with the very reply."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ebbtide.turns import mask_of, passages, stem
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Continued,
    Dispatched,
    Finished,
    Rollout,
    Scored,
    TurnReady,
    decode,
)
from services.planner.core.batches import candidates
from services.planner.core.samples import ACCEPTED, OpenStep
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, a_ref, some_data
from tests.unit.planner.world import World

EPISODES = structs.replace(NO_EVAL, turns=3, max_new_tokens=20)


def a_world(*, turns: int = 3, steps: int = 1, actors: int = 2) -> World:
    """Every turn has two tokens and every reply one; what decides is the number of turns."""
    work = structs.replace(EPISODES, turns=turns)
    world = World(a_config(steps=steps, work=work), some_data(), actors=actors)
    world.answer, world.says = (lambda _key, _limit: 2), (lambda _key: 1)
    return world


def until(world: World, kind: type, *, count: int = 1) -> None:
    """Rounds until the ledger has `count` records of `kind`."""
    for _ in range(200):
        if sum(isinstance(record, kind) for record in world.records) >= count:
            return
        world.one_round()
    raise AssertionError(f"no {kind.__name__}")


def records(world: World, kind: type) -> list[Any]:
    return [record for record in world.records if isinstance(record, kind)]


def the_step(world: World) -> OpenStep:
    step = world.seat.planner.book.open
    assert step is not None
    return step


def is_sound(world: World) -> bool:
    world.calm()
    assert world.outcome
    return world.outcome.outcome == "complete" and examine(world.evidence()).faults() == {}


def test_an_episode_has_as_many_turns_as_it_may_and_is_scored_once() -> None:
    world = a_world()
    assert is_sound(world)
    assert len(records(world, Continued)) == 2 * 4
    assert [record.key.turn for record in records(world, Scored)] == [2] * 4


def test_an_episode_that_its_environment_ends_has_fewer_turns() -> None:
    world = a_world()
    world.says = lambda key: int(key.index == 0 and key.turn == 0)
    assert is_sound(world)
    assert sorted(record.key.turn for record in records(world, Scored)) == [0, 0, 1, 1]


def test_every_turn_of_an_episode_is_drawn_by_one_actor_while_that_works() -> None:
    world = a_world()
    assert is_sound(world)
    drew = {(stem(record.key), record.actor) for record in records(world, Dispatched)}
    assert sorted(actor for _, actor in drew) == ["actor-1", "actor-1", "actor-2", "actor-2"]


def test_a_turn_without_room_for_a_reply_is_the_last() -> None:
    world = a_world()
    world.says = lambda _: 18
    assert is_sound(world)
    assert records(world, Continued) == []


def test_a_job_without_environment_has_one_turn() -> None:
    world = a_world(turns=1)
    assert is_sound(world)
    assert {record.key.turn for record in records(world, Dispatched)} == {0}


def test_only_the_last_turn_of_an_episode_is_learned_from_with_its_own_tokens_alone() -> None:
    world = a_world()
    until(world, Scored, count=4)
    found = candidates(the_step(world), EPISODES)
    assert [(one.key.turn, one.n_tokens, one.n_context, one.n_shared) for one in found] == [
        (2, 6, 5, 3)
    ] * 4


def test_the_mask_has_the_policys_turns_and_nothing_of_the_environments() -> None:
    world = a_world()
    until(world, Scored, count=4)
    whole = decode(world.blobs[records(world, Accepted)[-1].ref.path], Rollout)
    assert list(whole.action_mask) == [1, 1, 0, 1, 1, 0, 1, 1]
    assert [(p.start, p.end) for p in passages(mask_of(whole.spans, 8)) if p.chosen] == [
        (0, 2),
        (3, 5),
        (6, 8),
    ]


def test_a_step_is_not_decoded_while_an_environment_may_still_reply() -> None:
    world = a_world()
    until(world, Accepted, count=4)
    assert the_step(world).states.count(ACCEPTED) == 4
    assert the_step(world).undecoded == 4


def test_a_last_turn_is_decoded_once_it_is_accepted() -> None:
    world = a_world()
    until(world, Accepted, count=4 * 3)
    assert the_step(world).states.count(ACCEPTED) > 0
    assert the_step(world).undecoded == 0


def test_lengths_are_learned_from_whole_episodes_alone() -> None:
    world = a_world()
    until(world, Continued, count=4)
    seen = world.seat.planner.book.lengths.seen
    until(world, Scored, count=4)
    assert (seen, world.seat.planner.book.lengths.seen) == (0, 4)


def test_an_actor_that_dies_in_a_later_turn_loses_no_turn_before_it() -> None:
    world = a_world(actors=1)
    until(world, Continued, count=2)
    world.one_round()
    world.kill_actor(next(iter(world.actors)))
    world.journals.clear()
    world.start_actor()
    assert is_sound(world)
    firsts = [r for r in records(world, Accepted) if r.key.turn == 0]
    assert len(firsts) == 4


@pytest.mark.parametrize("kind", [Accepted, Continued, Dispatched])
def test_a_planner_that_takes_over_between_turns_loses_and_doubles_nothing(kind: type) -> None:
    world = a_world()
    until(world, kind, count=3)
    world.kill_planner()
    assert is_sound(world)
    assert len(records(world, Continued)) == 8


def test_a_new_attempt_goes_on_from_the_last_accepted_turn() -> None:
    world = a_world()
    until(world, Continued, count=6)
    world.kill_learner()
    assert is_sound(world)
    again = [r for r in records(world, Accepted) if r.key.turn == 0]
    assert len(again) == 4, "no first turn was drawn a second time"


def test_a_scorer_that_dies_with_the_request_is_asked_again() -> None:
    world = a_world()
    until(world, Accepted, count=2)
    world.scoring.clear()
    assert is_sound(world)


def test_a_reply_that_comes_again_and_late_continues_nothing() -> None:
    world = a_world()
    until(world, Continued, count=1)
    first = records(world, Continued)[0]
    accepted = next(r for r in records(world, Accepted) if r.key == first.key)
    late = TurnReady(first.key, accepted.ref.digest, a_ref("other"), 3, "rules", 0.0, "scorer")
    world.publish(late, "late")
    assert is_sound(world)


def test_a_settle_that_was_lost_is_made_good_though_the_next_turn_runs() -> None:
    world = a_world(actors=1)
    [actor] = world.actors.values()
    while len(records(world, Dispatched)) < 6:  # two of them are of later turns
        world.perform(world.seat)
        world.letters = [letter for letter in world.letters if letter.name != "Settle"]
        world.one_round()
    assert is_sound(world)
    assert {line.verdict for line in actor.settled} == {"accepted"}
    assert world.reports[0].samples.void == 0


def test_a_turn_that_was_drawn_twice_wastes_no_tokens_of_the_turns_before_it() -> None:
    world = a_world()
    until(world, Dispatched, count=5)
    first = records(world, Dispatched)[-1]
    assert first.key.turn == 1
    world.kill_actor(first.actor)
    world.tell_gone(first.actor)
    while [record.key for record in records(world, Dispatched)].count(first.key) < 2:
        world.one_round()
    before, hand = the_step(world).wasted_tokens, first.dispatch
    late = Finished(first.key, hand, first.actor, first.policy, a_ref("late"), 4, "stop", n_given=1)
    world.publish(late, "late")
    world.fetch()
    assert the_step(world).wasted_tokens == before + 2


def test_a_reply_beyond_the_limits_is_refused_by_giving_the_sample_up() -> None:
    world = a_world()
    until(world, Accepted)
    accepted = records(world, Accepted)[0]
    world.scoring.clear()
    much = TurnReady(accepted.key, accepted.ref.digest, a_ref("much"), 20, "rules", 0.0, "scorer")
    world.publish(much, "much")
    until(world, Abandoned)
    assert "beyond the last turn or token" in records(world, Abandoned)[0].why
    assert is_sound(world)


def test_a_late_step_gives_up_what_is_in_a_later_turn_too() -> None:
    world = a_world()
    until(world, Continued)
    world.tick(2000.0)
    world.perform(world.seat)
    assert 1 in {record.key.turn for record in records(world, Abandoned)}
