"""An actor without work can sleep: it gives up weights and KV until a policy is to be loaded."""

from __future__ import annotations

from ebbtide.wire import Drain, Ok, Refusal
from services.decode.core.messages import (
    Exported,
    Gone,
    Load,
    PolicyLoaded,
    SleepEngine,
    Slept,
)
from tests.unit.decode.rigs import FENCE, NEWER, OTHER, POLICY, Rig, assign, hand, ticket
from tests.unit.decode.test_holding import cut


def code(reply: object) -> str:
    assert isinstance(reply, Refusal), reply
    return reply.code


def asleep() -> Rig:
    rig = Rig()
    rig.sleep()
    rig.tell(Slept())
    return rig


def test_an_idle_actor_sleeps_and_its_heartbeat_says_so() -> None:
    rig = Rig()
    as_of = rig.beat().number + 1
    assert rig.sleep() == Ok(as_of)
    assert rig.of(SleepEngine) == [SleepEngine()]
    beat = rig.beat()
    assert (beat.number, beat.state, beat.policy) == (as_of, "asleep", None)


def test_to_be_told_twice_changes_nothing() -> None:
    rig = Rig()
    rig.sleep()
    assert isinstance(rig.sleep(), Ok)
    assert rig.of(SleepEngine) == []
    rig.tell(Slept())
    assert isinstance(rig.sleep(), Ok)
    assert rig.of(SleepEngine) == []


def test_an_older_planner_puts_nobody_to_sleep() -> None:
    rig = Rig()
    rig.submit(fence=NEWER)
    assert code(rig.sleep(FENCE)) == "fenced"
    assert rig.beat().state == "serving"


def test_samples_keep_it_awake() -> None:
    rig = Rig()
    rig.run()
    assert code(rig.sleep()) == "busy"
    assert rig.of(SleepEngine) == []


def test_kv_that_is_held_for_a_reader_keeps_it_awake() -> None:
    rig = Rig()
    dispatch = cut(rig)
    rig.tell(Exported(dispatch, ticket(dispatch)))
    rig.settle(dispatch)
    assert rig.beat().holding == (dispatch,)
    assert code(rig.sleep()) == "busy"
    rig.wait(31.0)
    assert isinstance(rig.sleep(), Ok)


def test_a_load_keeps_it_awake() -> None:
    rig = Rig()
    rig.load(OTHER)
    assert code(rig.sleep()) == "busy"


def test_unsettled_facts_do_not_keep_it_awake_and_stay() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.finish(dispatch)
    assert isinstance(rig.sleep(), Ok)
    assert rig.beat().outbox == (dispatch,)
    rig.settle(dispatch)
    assert rig.beat().outbox == ()


def test_an_engine_that_cannot_sleep_is_told_to_nothing() -> None:
    rig = Rig(sleeps=False)
    assert code(rig.sleep()) == "unable"
    assert rig.beat().state == "serving"


def test_asleep_it_takes_no_samples() -> None:
    rig = asleep()
    assert code(rig.submit(assign(hand()))) == "policy"
    assert rig.running() == {}


def test_a_policy_wakes_it_the_one_that_it_had_too() -> None:
    for policy in (POLICY, OTHER):
        rig = asleep()
        rig.load(policy)
        assert [load.policy for load in rig.of(Load)] == [policy]
        assert rig.beat().state == "loading"
        rig.tell(PolicyLoaded(policy))
        assert (rig.beat().state, rig.beat().policy) == ("serving", policy)


def test_a_policy_that_comes_while_it_falls_asleep_is_loaded_after_it() -> None:
    rig = Rig()
    rig.sleep()
    rig.load(OTHER)
    assert rig.of(Load) == []
    rig.tell(Slept())
    assert [load.policy for load in rig.of(Load)] == [OTHER]
    assert rig.beat().state == "loading"


def test_an_engine_that_failed_to_sleep_is_empty_and_can_be_loaded() -> None:
    rig = Rig()
    rig.sleep()
    rig.tell(Slept("broken"))
    assert (rig.beat().state, rig.beat().policy) == ("empty", None)
    rig.load(POLICY)
    assert [load.policy for load in rig.of(Load)] == [POLICY]


def test_who_sleeps_can_leave_and_who_leaves_does_not_sleep() -> None:
    rig = asleep()
    rig.command(Drain(FENCE))
    assert rig.of(Gone) == [Gone(orphaned=False)]
    assert rig.beat().state == "draining"
    assert code(rig.sleep()) == "draining"
