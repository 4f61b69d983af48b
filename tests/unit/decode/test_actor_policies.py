"""What an actor does about settling, fences, policies and leaving."""

from __future__ import annotations

import pytest

from ebbtide.wire import (
    Cut,
    Drain,
    Fence,
    Ok,
    Refusal,
)
from services.decode.core.messages import (
    CutEngine,
    Gone,
    Leave,
    Load,
    LoadFailed,
    PlannerSeen,
    PolicyLoaded,
    Publish,
)
from tests.unit.decode.rigs import (
    FENCE,
    INDEX,
    NEWER,
    OTHER,
    POLICY,
    THIRD,
    Rig,
    assign,
    hand,
    was_cut,
)

# --- facts until they are settled ---------------------------------------------------------------------


def test_facts_are_published_again_until_settled() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.finish(dispatch)
    [fact] = rig.facts
    rig.wait(2.0)
    assert rig.did == [Publish((fact,), FENCE, again=True)]
    rig.wait(1.9)
    assert rig.did == []
    rig.settle(dispatch)
    assert (rig.settled, rig.wait(2.0)) == ([(0, "accepted")], [])


def test_a_void_fact_is_dropped_too() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.finish(dispatch)
    rig.settle(void=(dispatch, hand(9)))
    assert (rig.settled, rig.beat().outbox) == ([(0, "void")], ())


def test_settling_what_still_runs_does_not_end_it() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.settle(dispatch)
    assert (rig.settled, rig.running()) == ([], {0: 0})


# --- fences -------------------------------------------------------------------------------------------


def test_a_lower_fence_is_refused_and_changes_nothing() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.tell(PlannerSeen(NEWER))
    for refuse in (rig.cut, rig.settle):
        reply = refuse(dispatch)
        assert isinstance(reply, Refusal)
        assert (reply.code, reply.seen, len(rig.did)) == ("fenced", NEWER, 1)
    assert rig.running() == {0: 0}


def test_an_attempt_counts_more_than_an_epoch() -> None:
    rig = Rig()
    rig.tell(PlannerSeen(Fence(2, 1)))
    assert isinstance(rig.load(OTHER, fence=Fence(1, 9)), Refusal)


def test_samples_of_an_earlier_epoch_run_on_under_a_new_planner() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.submit(assign(hand(5, epoch=2)), fence=NEWER)
    assert (rig.running(), rig.beat().fence) == ({0: 0, 5: 0}, NEWER)
    rig.finish(dispatch)
    assert len(rig.facts) == 1


# --- policies -----------------------------------------------------------------------------------------


def test_a_policy_is_loaded_at_once_when_nothing_is_held() -> None:
    rig = Rig(empty=True)
    assert rig.load(POLICY) == Ok(1)
    assert rig.of(Load) == [Load(POLICY, INDEX)]
    assert rig.beat().state == "loading"
    rig.tell(PolicyLoaded(POLICY))
    beat = rig.beat()
    assert (beat.state, beat.policy) == ("serving", POLICY)


def test_a_policy_that_is_held_is_not_loaded_again() -> None:
    rig = Rig()
    assert rig.load(POLICY) == Ok(1)
    assert rig.of(Load) == []


def test_a_load_cuts_what_runs_and_waits_for_it() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.load(OTHER)
    assert (rig.of(CutEngine), rig.of(Load)) == ([CutEngine(dispatch)], [])
    rig.happen(was_cut(dispatch, 0))
    assert [type(fact) for fact in rig.facts] == [Cut]
    assert rig.of(Load) == [Load(OTHER, INDEX)]


def test_the_old_policy_takes_nothing_in_while_another_waits() -> None:
    rig = Rig()
    rig.run()
    rig.load(OTHER)
    for policy in (POLICY, OTHER):
        reply = rig.submit(assign(hand(1), policy=policy))
        assert isinstance(reply, Refusal)
        assert reply.code == "policy"


def test_of_several_policies_the_last_is_loaded() -> None:
    rig = Rig(empty=True)
    rig.load(POLICY)
    rig.load(OTHER)
    rig.load(THIRD)
    rig.tell(PolicyLoaded(POLICY))
    assert rig.of(Load) == [Load(THIRD, INDEX)]


def test_a_policy_wanted_again_before_it_went_stays() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.load(OTHER)
    rig.load(POLICY)
    rig.happen(was_cut(dispatch, 0))
    assert (rig.of(Load), rig.beat().state) == ([], "serving")


def test_a_load_that_failed_is_tried_again_after_ever_longer_pauses() -> None:
    rig = Rig(empty=True)
    rig.load(OTHER)
    for pause in (1.0, 2.0, 4.0):
        rig.tell(LoadFailed(OTHER, "a digest differs"))
        beat = rig.beat()
        assert (beat.state, beat.load_failure) == ("loading", "a digest differs")
        assert rig.wait(pause - 0.1) == []
        assert rig.wait(0.1) == [Load(OTHER, INDEX)]
    rig.tell(PolicyLoaded(OTHER))
    assert (rig.beat().state, rig.beat().load_failure) == ("serving", "")


def fail_to_load(rig: Rig, last: LoadFailed) -> None:
    """Until the actor has had enough."""
    rig.load(OTHER)
    for tried in range(rig.limits.load_tries):
        if tried:
            rig.wait(2.0 ** (tried - 1))
        assert rig.of(Load) == [Load(OTHER, INDEX)]
        rig.tell(last)


def test_an_actor_whose_policy_never_loads_leaves_and_says_why() -> None:
    rig = Rig(empty=True)
    fault = LoadFailed(OTHER, "a digest differs", lasting=True)
    fail_to_load(rig, fault)
    assert rig.did == [Gone(orphaned=False, unable=fault)]
    assert (rig.beat().state, rig.beat().load_failure) == ("draining", "a digest differs")


def test_an_actor_that_gives_a_policy_up_has_its_facts_settled_first() -> None:
    rig = Rig()
    rig.finish(rig.run())
    fault = LoadFailed(OTHER, "a digest differs")
    fail_to_load(rig, fault)
    assert rig.of(Gone) == []
    rig.settle(hand())
    assert rig.of(Gone) == [Gone(orphaned=False, unable=fault)]


def test_asking_again_does_not_shorten_the_pause() -> None:
    rig = Rig(empty=True)
    rig.load(OTHER)
    rig.tell(LoadFailed(OTHER, "why"))
    rig.load(OTHER)
    assert rig.of(Load) == []


def test_another_policy_is_loaded_at_once_between_two_tries() -> None:
    rig = Rig(empty=True)
    rig.load(OTHER)
    rig.tell(LoadFailed(OTHER, "why"))
    rig.load(THIRD)
    assert (rig.of(Load), rig.beat().load_failure) == ([Load(THIRD, INDEX)], "")


def test_a_heartbeat_adds_up_the_seconds_spent_on_prompts() -> None:
    rig = Rig()
    for seq in range(2):
        rig.finish(rig.run(hand(seq)))
    assert rig.beat().prefill_seconds == pytest.approx(0.4)


@pytest.mark.parametrize("late", [PolicyLoaded(POLICY), LoadFailed(POLICY, "why")])
def test_late_news_of_an_earlier_load_changes_nothing(late: PolicyLoaded | LoadFailed) -> None:
    rig = Rig()
    rig.load(OTHER)
    rig.tell(late)
    beat = rig.beat()
    assert (beat.state, beat.policy) == ("loading", None)


# --- leaving ------------------------------------------------------------------------------------------


def test_an_idle_actor_leaves_at_once() -> None:
    rig = Rig()
    assert rig.command(Drain(FENCE)) == Ok(1)
    assert rig.of(Gone) == [Gone(orphaned=False)]


def test_an_actor_leaves_with_empty_hands_and_an_empty_outbox() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.tell(Leave())
    assert (rig.of(CutEngine), rig.beat().state) == ([CutEngine(dispatch)], "draining")
    rig.happen(was_cut(dispatch, 0))
    assert (len(rig.facts), rig.of(Gone)) == (1, [])
    rig.settle(void=(dispatch,))
    assert rig.of(Gone) == [Gone(orphaned=False)]


def test_an_actor_leaves_once() -> None:
    rig = Rig()
    rig.tell(Leave())
    rig.tell(Leave())
    assert rig.of(Gone) == []


def test_a_draining_actor_loads_nothing() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.tell(Leave())
    reply = rig.load(OTHER)
    assert isinstance(reply, Refusal)
    assert reply.code == "draining"
    rig.happen(was_cut(dispatch, 0))
    assert rig.of(Load) == []


def test_an_actor_without_a_planner_ends() -> None:
    rig = Rig()
    rig.run()
    rig.wait(59.9)
    assert rig.of(Gone) == []
    rig.wait(0.2)
    assert rig.of(Gone) == [Gone(orphaned=True)]
    assert isinstance(rig.submit(assign(hand(1))), Refusal)


@pytest.mark.parametrize(("fence", "lives"), [(FENCE, True), (NEWER, True), (Fence(0, 9), False)])
def test_a_planner_is_heard_unless_it_is_an_old_one(fence: Fence, *, lives: bool) -> None:
    rig = Rig()
    rig.now = 40.0
    rig.tell(PlannerSeen(fence))
    rig.wait(40.0)
    assert (rig.of(Gone) == []) is lives


def test_a_fenced_command_is_no_sign_of_a_planner() -> None:
    rig = Rig()
    rig.tell(PlannerSeen(NEWER))
    rig.now = 40.0
    rig.cut(hand())
    rig.wait(40.0)
    assert rig.of(Gone) == [Gone(orphaned=True)]


def test_a_reply_names_the_first_heartbeat_that_shows_the_effect() -> None:
    rig = Rig()
    rig.beat()
    reply = rig.submit(assign())
    assert reply == Ok(rig.beat().number)
