"""What an actor answers and does, one event at a time."""

from __future__ import annotations

import pytest

from ebbtide.ports import EngineFailed
from ebbtide.wire import (
    Cut,
    CutSamples,
    Dispatch,
    Drain,
    EngineStats,
    Failed,
    Fence,
    Finished,
    LoadPolicy,
    Ok,
    Refusal,
    Settle,
    Submit,
)
from services.decode.core.messages import (
    Admit,
    CutEngine,
    Fetch,
    FetchFailed,
    Gone,
    Journalled,
    Leave,
    Load,
    LoadFailed,
    PlannerSeen,
    PolicyLoaded,
    Publish,
    Settled,
    Store,
    Stored,
    Tick,
    Write,
)
from tests.unit.decode.actors import (
    BLOB,
    FENCE,
    NEW,
    OLD,
    Bench,
    assign,
    cut,
    finish,
    resumed,
    text,
    tokens,
)

D0, D1 = assign(0).dispatch, assign(1).dispatch


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _running(bench: Bench, *, resume: int = 0) -> None:
    bench.command(Submit(FENCE, (assign(0, resume=resume),)))
    bench.run(D0, resume=resume)


def test_a_submitted_sample_is_fetched_then_given_to_the_engine(bench: Bench) -> None:
    _running(bench)
    assert bench.of(Fetch) == [Fetch(assign(0))]
    assert bench.of(Admit) == [Admit(assign(0), b"prompt", None)]
    assert bench.running() == {0: 0}


def test_a_submit_that_comes_again_changes_nothing(bench: Bench) -> None:
    _running(bench)
    assert isinstance(bench.command(Submit(FENCE, (assign(0),))), Ok)
    assert len(bench.of(Fetch)) == 1


def test_a_submit_after_the_end_changes_nothing(bench: Bench) -> None:
    _running(bench)
    bench.engine(finish(D0, 3))
    bench.tell(Stored(D0, BLOB))
    bench.command(Submit(FENCE, (assign(0),)))
    bench.command(Settle(FENCE, (D0,)))
    bench.command(Submit(FENCE, (assign(0),)))
    assert len(bench.of(Fetch)) == 1
    assert bench.running() == {}


def test_a_lower_fence_is_refused_and_named(bench: Bench) -> None:
    bench.command(Submit(Fence(1, 2), ()))
    reply = bench.command(Submit(Fence(1, 1), (assign(0),)))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.seen) == ("fenced", Fence(1, 2))
    assert bench.of(Fetch) == []


def test_a_higher_fence_is_adopted_with_what_already_runs(bench: Bench) -> None:
    _running(bench)
    bench.command(CutSamples(Fence(2, 5), (D0,)))
    assert bench.of(CutEngine) == [CutEngine(D0)]
    assert bench.actor.heartbeat(EngineStats()).fence == Fence(2, 5)


def test_a_sample_of_another_policy_is_refused(bench: Bench) -> None:
    reply = bench.command(Submit(FENCE, (assign(0), assign(1, policy=NEW))))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.dispatches) == ("policy", (D1,))
    assert bench.running() == {}


def test_more_than_slots_and_queue_is_refused(bench: Bench) -> None:
    reply = bench.command(Submit(FENCE, tuple(assign(i) for i in range(9))))
    assert isinstance(reply, Refusal)
    assert reply.code == "full"


def test_the_fact_follows_the_blob(bench: Bench) -> None:
    _running(bench)
    effects = bench.engine(finish(D0, 3))
    assert [type(effect) for effect in effects] == [Store]
    assert bench.running() == {0: 0}
    bench.tell(Stored(D0, BLOB))
    assert bench.facts() == [Finished(assign(0).key, D0, "a0", OLD, BLOB, 3, "stop")]
    assert (bench.running(), bench.outbox()) == ({}, [0])


def test_the_rollout_has_all_that_belongs_together(bench: Bench) -> None:
    _running(bench)
    bench.engine(finish(D0, 3))
    rollout = bench.of(Store)[0].rollout
    assert (rollout.prompt_tokens, rollout.tokens) == (b"prompt", text(0, 3).tokens)
    assert (rollout.spans, rollout.action_mask) == (text(0, 3).spans, b"\x01\x01\x01")
    assert (rollout.finish, rollout.timings.decode, rollout.actor) == ("stop", 0.3, "a0")


def test_only_a_settled_fact_is_dropped(bench: Bench) -> None:
    _running(bench)
    bench.engine(finish(D0, 3))
    bench.tell(Stored(D0, BLOB))
    bench.command(Settle(FENCE, (), (Dispatch(1, 1, 9),)))
    assert bench.outbox() == [0]
    bench.command(Settle(FENCE, (D0,)))
    assert bench.outbox() == []
    assert bench.of(Settled) == [Settled(bench.facts()[0], "accepted")]


def test_a_void_fact_is_dropped_and_recorded_as_void(bench: Bench) -> None:
    _running(bench)
    bench.engine(EngineFailed(D0, "engine", "why"))
    bench.command(Settle(FENCE, (), (D0,)))
    assert [each.verdict for each in bench.of(Settled)] == ["void"]


def test_unsettled_facts_are_published_again(bench: Bench) -> None:
    _running(bench)
    bench.engine(EngineFailed(D0, "engine", "why"))
    first = len(bench.of(Publish))
    bench.tell(Tick(), after=1.0)
    assert len(bench.of(Publish)) == first
    bench.tell(Tick(), after=1.1)
    assert bench.of(Publish)[-1].facts == (Failed(assign(0).key, D0, "a0", "engine", "why"),)
    assert len(bench.of(Publish)) == first + 1


def test_running_counts_only_what_the_hot_store_has(bench: Bench) -> None:
    _running(bench)
    bench.engine(tokens(D0, 0, 5))
    assert bench.running() == {0: 0}
    bench.tell(Journalled(((D0, 5),)))
    assert bench.running() == {0: 5}


def test_a_resumed_sample_journals_its_prefix_first(bench: Bench) -> None:
    _running(bench, resume=3)
    assert [write.chunk for write in bench.of(Write)] == [text(0, 3)]
    assert bench.of(Admit) == [Admit(assign(0, resume=3), b"prompt", resumed(3))]


def test_a_lost_journal_is_a_failure_of_its_own(bench: Bench) -> None:
    bench.command(Submit(FENCE, (assign(0, resume=3),)))
    bench.tell(FetchFailed(D0, "journal_lost", "gone"))
    assert bench.facts() == [Failed(assign(0).key, D0, "a0", "journal_lost", "gone")]


def test_a_cut_is_told_once_its_journal_is_complete(bench: Bench) -> None:
    _running(bench)
    bench.command(CutSamples(FENCE, (D0,)))
    bench.engine(cut(D0, 4))
    assert bench.facts() == []
    bench.tell(Journalled(((D0, 4),)))
    [fact] = bench.facts()
    assert isinstance(fact, Cut)
    assert fact.journal is not None
    assert (fact.n_tokens, fact.journal.n_tokens) == (4, 4)


def test_a_cut_writes_its_journal_whole(bench: Bench) -> None:
    _running(bench)
    bench.engine(tokens(D0, 0, 2))
    bench.command(CutSamples(FENCE, (D0,)))
    bench.engine(cut(D0, 4))
    assert bench.of(Write)[-1].chunk == text(0, 4)


def test_a_cut_does_not_wait_for_ever_for_the_hot_store(bench: Bench) -> None:
    _running(bench)
    bench.engine(tokens(D0, 0, 2))
    bench.tell(Journalled(((D0, 2),)))
    bench.command(CutSamples(FENCE, (D0,)))
    bench.engine(cut(D0, 4))
    bench.tell(Tick(), after=10.0)
    [fact] = bench.facts()
    assert isinstance(fact, Cut)
    assert fact.n_tokens == 2


def test_a_cut_before_any_token_has_no_journal(bench: Bench) -> None:
    bench.command(Submit(FENCE, (assign(0),)))
    bench.command(CutSamples(FENCE, (D0,)))
    assert bench.facts() == [Cut(assign(0).key, D0, "a0", None, 0)]
    bench.run(D0)
    assert bench.of(Admit) == []


def test_a_cut_that_meets_a_finish_answers_finished(bench: Bench) -> None:
    _running(bench)
    bench.command(CutSamples(FENCE, (D0,)))
    bench.engine(finish(D0, 3))
    bench.command(CutSamples(FENCE, (D0,)))
    bench.tell(Stored(D0, BLOB))
    assert [type(fact) for fact in bench.facts()] == [Finished]


def test_a_cut_of_what_is_not_here_is_fine(bench: Bench) -> None:
    assert isinstance(bench.command(CutSamples(FENCE, (D0,))), Ok)
    assert bench.done[1:] == []


def test_loading_waits_until_nothing_runs(bench: Bench) -> None:
    _running(bench)
    bench.command(LoadPolicy(FENCE, NEW, BLOB))
    assert bench.of(CutEngine) == [CutEngine(D0)]
    assert bench.of(Load) == []
    bench.engine(cut(D0, 0))
    assert bench.of(Load) == [Load(NEW, BLOB)]
    assert (bench.actor.state, bench.actor.policy) == ("loading", None)
    bench.tell(PolicyLoaded(NEW))
    assert (bench.actor.state, bench.actor.policy) == ("serving", NEW)


def test_a_policy_that_is_held_is_not_loaded_again(bench: Bench) -> None:
    bench.command(LoadPolicy(FENCE, OLD, BLOB))
    assert bench.of(Load) == []


def test_after_a_failed_load_nothing_is_served_and_it_may_be_tried_again() -> None:
    bench = Bench(holding=None)
    bench.command(LoadPolicy(FENCE, NEW, BLOB))
    bench.tell(LoadFailed(NEW))
    assert bench.actor.state == "empty"
    assert isinstance(bench.command(Submit(FENCE, (assign(0, policy=NEW),))), Refusal)
    bench.command(LoadPolicy(FENCE, NEW, BLOB))
    assert len(bench.of(Load)) == 2


@pytest.mark.parametrize("by", [Leave(), Drain(FENCE)], ids=["sigterm", "command"])
def test_a_draining_actor_leaves_with_an_empty_outbox(bench: Bench, by: Leave | Drain) -> None:
    _running(bench)
    if isinstance(by, Leave):
        bench.tell(by)
    else:
        bench.command(by)
    assert bench.of(CutEngine) == [CutEngine(D0)]
    bench.engine(cut(D0, 0))
    assert bench.of(Gone) == []
    bench.command(Settle(FENCE, (D0,)))
    assert bench.of(Gone) == [Gone(orphaned=False)]


def test_a_draining_actor_takes_nothing_more(bench: Bench) -> None:
    _running(bench)
    bench.tell(Leave())
    reply = bench.command(Submit(FENCE, (assign(1),)))
    assert isinstance(reply, Refusal)
    assert reply.code == "draining"


def test_an_idle_actor_leaves_at_once(bench: Bench) -> None:
    assert bench.tell(Leave()) == [Gone(orphaned=False)]


def test_an_actor_that_hears_no_planner_ends(bench: Bench) -> None:
    bench.tell(Tick(), after=599.0)
    bench.tell(PlannerSeen(FENCE))
    bench.tell(Tick(), after=599.0)
    assert bench.of(Gone) == []
    bench.tell(PlannerSeen(Fence(0, 9)), after=1.0)
    bench.tell(Tick())
    assert bench.of(Gone) == [Gone(orphaned=True)]


def test_heartbeats_number_themselves_and_a_reply_names_the_next() -> None:
    bench = Bench()
    first = bench.actor.heartbeat(EngineStats()).number
    reply = bench.command(Submit(FENCE, (assign(0),)))
    assert reply == Ok(as_of=first + 1)
    assert bench.actor.heartbeat(EngineStats()).number == first + 1
