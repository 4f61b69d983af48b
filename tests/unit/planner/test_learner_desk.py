"""The learner is asked until its answer fits the command."""

from __future__ import annotations

from ebbtide.wire import (
    Fence,
    Learn,
    Learned,
    LearnerBeat,
    LearnToken,
    Refusal,
    Save,
    Saved,
    Working,
)
from services.planner.core.learner import LearnerDesk
from tests.unit.planner.builders import a_policy, a_ref

FENCE = Fence(1, 1)
TOKEN = LearnToken(1, 4, "d")
LEARN = Learn(FENCE, TOKEN, a_ref("batch"))
DONE = Learned(TOKEN, a_policy(5), a_ref("index"), (), 1.0)


def at_work(command: Learn | Save = LEARN) -> LearnerDesk:
    desk = LearnerDesk(deadline=100.0, poll=2.0, retry=0.5)
    desk.give(command, now=0.0)
    asked(desk, 0.0)
    return desk


def asked(desk: LearnerDesk, now: float) -> bool:
    order = desk.to_ask(now)
    if order:
        order.call = 7
    return order is not None


def test_the_right_answer_ends_the_order() -> None:
    desk = at_work()
    assert desk.answered(7, DONE, 1.0) is DONE
    assert desk.idle


def test_an_answer_to_an_older_command_does_not() -> None:
    desk = at_work()
    older = Learned(LearnToken(1, 3, "c"), a_policy(4), a_ref("index"), (), 1.0)
    assert desk.answered(7, older, 1.0) is None
    assert not desk.idle


def test_a_working_learner_is_asked_again_soon_and_then_every_two_seconds() -> None:
    desk = at_work()
    desk.answered(7, Working("learning"), 0.0)
    assert not asked(desk, 0.05)
    assert asked(desk, 0.1)
    desk.answered(7, Working("learning"), 5.0)
    assert not asked(desk, 6.9)
    assert asked(desk, 7.0)


def test_the_second_time_it_is_asked_when_it_should_be_done() -> None:
    desk = at_work()
    desk.answered(7, DONE, 1.5)
    desk.give(LEARN, now=10.0)
    assert asked(desk, 10.0)
    desk.answered(7, Working("learning"), 10.0)
    assert not asked(desk, 11.5)
    assert asked(desk, 11.6)


def test_news_of_an_idle_learner_make_it_asked_at_once() -> None:
    desk = at_work()
    desk.hear(LearnerBeat(1, a_policy(4), a_ref("i"), "learning", 4), 0.5)
    desk.answered(7, Working("learning"), 0.5)
    desk.hear(LearnerBeat(1, a_policy(5), a_ref("i"), "idle", 5), 0.51)
    assert asked(desk, 0.51)


def test_silence_is_answered_by_asking_less_and_less_often() -> None:
    desk = at_work()
    desk.answered(7, None, 5.0)
    assert asked(desk, 5.5)
    desk.answered(7, None, 10.0)
    assert not asked(desk, 10.9)
    assert asked(desk, 11.0)


def test_a_refusal_ends_the_order() -> None:
    desk = at_work()
    refusal = Refusal("policy", "another base")
    assert desk.answered(7, refusal, 1.0) is refusal


def test_a_temporary_refusal_of_an_update_is_tried_anew() -> None:
    desk = at_work()
    assert desk.answered(7, Refusal("temporary", "storage"), 1.0) is None
    assert asked(desk, 1.5)


def test_a_checkpoint_that_storage_keeps_refusing_is_given_up() -> None:
    desk = at_work(Save(FENCE, 4))
    answers = []
    for now in range(1, 40, 3):
        answers.append(desk.answered(7, Refusal("temporary", "full"), float(now)))
        if answers[-1]:
            break
        assert asked(desk, now + 2.5)
    assert isinstance(answers[-1], Refusal)
    assert len(answers) == 6


def test_work_between_refusals_does_not_make_storage_any_better() -> None:
    desk = at_work(Save(FENCE, 4))
    for now in range(0, 60, 6):
        assert desk.answered(7, Working("saving"), float(now)) is None
        assert asked(desk, now + 2.5)
        if desk.answered(7, Refusal("temporary", "full"), now + 2.6):
            break
        assert asked(desk, now + 5.5)
    assert desk.idle


def test_an_older_checkpoint_is_not_the_one_that_was_ordered() -> None:
    desk = at_work(Save(FENCE, 4))
    saved = Saved(1, 3, a_policy(3), a_ref("i"), (), 0.1)
    assert desk.answered(7, saved, 1.0) is None


def test_an_order_is_late_after_its_deadline() -> None:
    desk = at_work()
    assert not desk.late(100.0)
    assert desk.late(100.1)
