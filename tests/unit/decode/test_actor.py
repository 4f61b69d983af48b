"""What an actor does about one event."""

from __future__ import annotations

import pytest

from ebbtide.wire import (
    Cut,
    Failed,
    Finished,
    JournalRef,
    Ok,
    Refusal,
    Span,
    pack_ints,
    unpack_mask,
)
from services.decode.core.messages import (
    Admit,
    CutEngine,
    Fetch,
    Fetched,
    FetchFailed,
    Leave,
    Store,
    Stored,
    Write,
)
from tests.unit.decode.rigs import (
    INDEX,
    OTHER,
    POLICY,
    Rig,
    assign,
    chunk,
    hand,
    has_failed,
    has_finished,
    key,
    resumed,
    tokens,
    was_cut,
)

# --- intake -----------------------------------------------------------------------------------------


def test_a_submitted_sample_is_read_for_and_then_admitted() -> None:
    rig, dispatch = Rig(), hand()
    assert rig.submit(assign(dispatch)) == Ok(1)
    assert rig.of(Fetch) == [Fetch(assign(dispatch))]
    rig.tell(Fetched(dispatch, b"prompt", None))
    assert rig.did == [Admit(assign(dispatch), b"prompt", None)]


def test_a_repeated_submit_changes_nothing() -> None:
    rig = Rig()
    dispatch = rig.run()
    assert rig.submit(assign(dispatch), assign(dispatch)) == Ok(1)
    assert len(rig.did) == 1


def test_a_sample_twice_in_one_submit_is_read_once() -> None:
    rig = Rig()
    rig.submit(assign(hand()), assign(hand()))
    assert len(rig.of(Fetch)) == 1


def test_a_sample_that_was_settled_is_not_run_again() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.finish(dispatch)
    rig.settle(dispatch)
    assert rig.submit(assign(dispatch)) == Ok(1)
    assert (rig.of(Fetch), rig.running()) == ([], {})


def test_samples_of_another_policy_are_refused_and_named() -> None:
    rig = Rig()
    reply = rig.submit(assign(hand(0)), assign(hand(1), policy=OTHER))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.dispatches) == ("policy", (hand(1),))
    assert rig.running() == {}


def test_an_empty_actor_refuses_every_sample() -> None:
    reply = Rig(empty=True).submit(assign())
    assert isinstance(reply, Refusal)
    assert reply.code == "policy"


def test_a_full_actor_refuses_what_is_beyond() -> None:
    rig = Rig(slots=1, queue=1)
    rig.submit(assign(hand(0)), assign(hand(1)))
    reply = rig.submit(assign(hand(2)))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.dispatches) == ("full", (hand(2),))
    assert rig.submit(assign(hand(1))) == Ok(1)


def test_a_draining_actor_refuses_new_samples_but_knows_its_own() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.tell(Leave())
    reply = rig.submit(assign(hand(9)), assign(dispatch))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.dispatches) == ("draining", (hand(9),))
    assert rig.submit(assign(dispatch)) == Ok(1)


@pytest.mark.parametrize("code", ["prompt", "journal_lost"])
def test_what_cannot_be_read_fails(code: str) -> None:
    rig, dispatch = Rig(), hand()
    rig.submit(assign(dispatch))
    rig.tell(FetchFailed(dispatch, code, "x" * 9000))
    assert rig.facts == [Failed(key(dispatch), dispatch, "a", code, "x" * 500)]


# --- from tokens to facts -----------------------------------------------------------------------------


def test_tokens_are_journalled_and_shown_once_the_store_has_them() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(tokens(dispatch, 0, 3))
    assert rig.did == [Write(JournalRef(key(dispatch), dispatch, 3), chunk(0, 3))]
    assert (rig.running(), rig.actor.unjournalled) == ({0: 0}, 3)
    rig.journalled(dispatch, 3)
    assert (rig.running(), rig.actor.unjournalled) == ({0: 3}, 0)


def test_an_old_acknowledgement_takes_nothing_back() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(tokens(dispatch, 0, 3), tokens(dispatch, 3, 5))
    rig.journalled(dispatch, 5)
    rig.journalled(dispatch, 3)
    assert rig.running() == {0: 5}


def test_a_resumed_sample_journals_its_beginning_first() -> None:
    rig, dispatch = Rig(), hand(1)
    asked = assign(dispatch, resume=JournalRef(key(hand()), hand(), 4))
    rig.submit(asked)
    rig.tell(Fetched(dispatch, b"p", resumed(4)))
    write = Write(JournalRef(key(dispatch), dispatch, 4), chunk(0, 4))
    assert rig.did == [write, Admit(asked, b"p", resumed(4))]


def test_a_finished_sample_is_stored_whole() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(has_finished(dispatch, 5))
    [store] = rig.of(Store)
    rollout = store.rollout
    assert (rollout.key, rollout.dispatch, rollout.actor) == (key(dispatch), dispatch, "a")
    assert (rollout.prompt_tokens, rollout.tokens) == (pack_ints([7]), chunk(0, 5).tokens)
    assert list(unpack_mask(rollout.action_mask)) == [1] * 5
    assert (rollout.spans, rollout.finish) == ((Span(0, 5, POLICY),), "stop")


def test_the_fact_follows_the_stored_rollout() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(has_finished(dispatch, 5))
    assert (rig.facts, rig.running()) == ([], {0: 0})
    ref = INDEX
    rig.tell(Stored(((dispatch, ref),)))
    assert rig.facts == [Finished(key(dispatch), dispatch, "a", POLICY, ref, 5, "stop")]
    assert (rig.running(), rig.beat().outbox) == ({}, (dispatch,))


def test_the_fact_names_the_policy_that_the_engine_stamped() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(has_finished(dispatch, 5, policy=OTHER))
    rig.tell(Stored(((dispatch, INDEX),)))
    [fact] = rig.facts
    assert isinstance(fact, Finished)
    assert fact.policy == OTHER


def test_a_failure_of_the_engine_is_told() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(has_failed(dispatch))
    assert rig.facts == [Failed(key(dispatch), dispatch, "a", "engine", "why")]


def test_events_of_strangers_change_nothing() -> None:
    rig = Rig()
    rig.happen(tokens(hand(9), 0, 3), was_cut(hand(9), 3), has_finished(hand(9), 3))
    rig.tell(Stored(((hand(9), INDEX),)))
    rig.journalled(hand(9), 3)
    assert (rig.did, rig.running()) == ([], {})


# --- cuts ---------------------------------------------------------------------------------------------


def test_a_cut_waits_for_the_journal() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(tokens(dispatch, 0, 3))
    rig.cut(dispatch)
    assert rig.of(CutEngine) == [CutEngine(dispatch)]
    rig.happen(was_cut(dispatch, 5))
    rig.journalled(dispatch, 3)
    assert rig.facts == []
    rig.journalled(dispatch, 5)
    ref = JournalRef(key(dispatch), dispatch, 5)
    assert rig.facts == [Cut(key(dispatch), dispatch, "a", ref, 5)]


def test_a_cut_writes_its_journal_again_from_the_first_token() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(tokens(dispatch, 0, 3), was_cut(dispatch, 5))
    assert [effect.chunk for effect in rig.of(Write)] == [chunk(0, 3), chunk(0, 5)]


def test_a_cut_hands_over_what_is_journalled_when_the_store_stays_away() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(tokens(dispatch, 0, 3))
    rig.journalled(dispatch, 3)
    rig.cut(dispatch)
    rig.happen(was_cut(dispatch, 5))
    rig.wait(9.9)
    assert rig.facts == []
    rig.wait(0.2)
    ref = JournalRef(key(dispatch), dispatch, 3)
    assert rig.facts == [Cut(key(dispatch), dispatch, "a", ref, 3)]


def test_a_cut_that_meets_the_finish_answers_finished() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.cut(dispatch)
    rig.finish(dispatch)
    assert [type(fact) for fact in rig.facts] == [Finished]


def test_what_is_being_stored_cannot_be_cut() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.happen(has_finished(dispatch, 3))
    rig.cut(dispatch)
    assert (rig.of(CutEngine), rig.facts) == ([], [])


def test_a_cut_before_admission_never_reaches_the_engine() -> None:
    rig, dispatch = Rig(), hand()
    rig.submit(assign(dispatch))
    rig.cut(dispatch)
    assert rig.facts == [Cut(key(dispatch), dispatch, "a", None, 0)]
    rig.tell(Fetched(dispatch, b"p", None))
    assert rig.did == []


def test_a_repeated_cut_is_passed_on_once() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.cut(dispatch)
    assert rig.cut(dispatch, dispatch) == Ok(1)
    assert rig.of(CutEngine) == []


def test_a_source_never_resumes_what_it_cut() -> None:
    rig, dispatch = Rig(), hand()
    rig.submit(assign(dispatch))
    rig.cut(dispatch)
    rig.submit(assign(dispatch))
    assert rig.of(Fetch) == []
