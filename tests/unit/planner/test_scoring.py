"""When a score is asked for again, and when it is given up."""

from __future__ import annotations

import math

import pytest

from ebbtide.wire import Error, Invalid, RewardBeat, Value
from services.planner.core.scoring import ScoringDesk, verdict


def a_desk(tries: int = 2) -> ScoringDesk:
    return ScoringDesk(tries=tries, deadline=20.0, idle=3.0, grace=10.0)


def a_beat(*, busy: int = 0, scored: int = 0, breaker_open: bool = False) -> RewardBeat:
    return RewardBeat("s", busy, scored, 0, breaker_open, "rules")


def test_a_try_ends_at_its_deadline() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    assert desk.overdue(19.9) == []
    assert desk.overdue(20.0) == [1]


def test_a_sample_that_waited_under_an_earlier_planner_has_the_rest_of_its_time() -> None:
    desk = a_desk()
    desk.resume(1, waited=25.0, now=100.0)
    assert desk.overdue(114.9) == []
    assert desk.overdue(115.0) == [1]
    assert not desk.failed(1, 115.0), "the first try is used up"


def test_after_a_take_over_every_sample_has_a_moment_for_its_score_to_be_heard() -> None:
    desk = a_desk()
    desk.resume(1, waited=1000.0, now=0.0)
    assert desk.overdue(9.9) == []
    assert desk.overdue(10.0) == [1]


def test_deadlines_come_in_their_order_whoever_began_first() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.resume(2, waited=5.0, now=1.0)
    assert desk.overdue(16.0) == [2]


def test_a_scored_sample_is_not_overdue() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.done(1, 5.0)
    assert desk.overdue(100.0) == []


def test_a_later_turn_of_a_sample_has_a_deadline_and_tries_of_its_own() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.done(1, 5.0)
    desk.ask(1, 15.0)
    assert desk.overdue(34.9) == []
    assert desk.overdue(35.0) == [1]
    assert desk.failed(1, 35.0)


def test_an_old_turns_pause_asks_for_nothing() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.failed(1, 0.5)
    desk.done(1, 0.6)
    desk.ask(1, 0.7)
    desk.failed(1, 1.0)
    assert desk.again(1.9) == []
    assert desk.again(2.0) == [1]


def test_an_error_is_asked_again_after_a_pause() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    assert desk.failed(1, 1.0)
    assert desk.again(1.5) == []
    assert desk.again(2.0) == [1]


def test_the_last_error_gives_up() -> None:
    desk = a_desk(tries=1)
    desk.ask(1, 0.0)
    assert not desk.failed(1, 1.0)


def test_idle_scorers_that_forgot_their_queue_are_asked_for_everything() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.hear(a_beat(), 0.0)
    desk.hear(a_beat(), 3.0)
    assert desk.again(2.9) == []
    assert desk.again(3.0) == [1]
    assert desk.again(3.1) == []


def test_scorers_at_work_are_not_asked_twice() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.hear(a_beat(busy=1), 2.0)
    assert desk.again(3.0) == []


def test_an_open_breaker_is_left_alone() -> None:
    desk = a_desk()
    desk.ask(1, 0.0)
    desk.hear(a_beat(breaker_open=True), 3.0)
    assert desk.again(3.5) == []


@pytest.mark.parametrize("total", [math.nan, math.inf, 1e308, -1e308])
def test_a_value_that_is_no_number_to_reckon_with_is_invalid(total: float) -> None:
    assert isinstance(verdict(Value(total, ())), Invalid)


def test_other_verdicts_stand() -> None:
    assert verdict(Value(0.5, ())) == Value(0.5, ())
    assert verdict(Error("x")) == Error("x")
