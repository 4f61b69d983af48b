"""What rank 0 answers: fences, repeated commands, refusals."""

from __future__ import annotations

import pytest

from ebbtide.errors import Conflict, Corrupt, NotFound, Permanent, Temporary
from ebbtide.wire import (
    Fence,
    Learn,
    Learned,
    LearnToken,
    PolicyRef,
    Ref,
    Refusal,
    Save,
    Saved,
    Working,
)
from services.learner.core.desk import Desk
from services.learner.core.patience import Patience
from services.learner.core.votes import verdict, vote

REF = Ref("m", "digest", 1)
POLICY = PolicyRef(1, 2, "p")


def learn(step: int = 0, *, epoch: int = 1, attempt: int = 2, digest: str = "digest") -> Learn:
    return Learn(Fence(attempt, epoch), LearnToken(2, step, digest), REF)


def done(command: Learn) -> Learned:
    return Learned(command.token, POLICY, REF, (), 1.0)


def kept(step: int) -> Saved:
    return Saved(2, step, POLICY, REF, (), 1.0)


def test_a_command_starts_once_and_is_answered_when_done() -> None:
    desk, command = Desk(attempt=2), learn()
    assert desk.receive(command) == (Working("learning"), command)
    assert desk.receive(command) == (Working("learning"), None)
    desk.finish(command, done(command))
    assert desk.receive(command) == (done(command), None)
    assert (desk.phase, desk.step) == ("idle", 1)


def test_the_answer_of_a_checkpoint_is_given_without_running_again() -> None:
    command = learn(4)
    desk = Desk(attempt=2, step=5, last=done(command))
    assert desk.receive(command) == (done(command), None)


def test_a_new_batch_for_a_done_step_is_new_work() -> None:
    desk, command = Desk(attempt=2, step=1, last=done(learn())), learn(digest="other")
    assert desk.receive(command)[1] == command


@pytest.mark.parametrize("command", [learn(epoch=1), learn(epoch=3, attempt=1), learn(attempt=3)])
def test_a_superseded_planner_or_another_attempt_is_fenced(command: Learn) -> None:
    desk = Desk(attempt=2)
    desk.receive(Save(Fence(2, 2), 0))
    reply, started = desk.receive(command)
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.seen, started) == ("fenced", Fence(2, 2), None)


def test_other_commands_wait_while_one_runs() -> None:
    desk, command = Desk(attempt=2), learn()
    desk.receive(command)
    assert desk.receive(Save(Fence(2, 1), 0)) == (Working("learning"), None)


def test_a_save_is_done_once_per_step() -> None:
    desk, command = Desk(attempt=2, step=3), Save(Fence(2, 1), 3)
    assert desk.receive(command) == (Working("saving"), command)
    desk.finish(command, kept(3))
    assert desk.receive(command) == (kept(3), None)
    assert desk.saved == (kept(3),)


def test_a_save_of_a_state_that_is_gone_is_refused() -> None:
    reply, started = Desk(attempt=2, step=3).receive(Save(Fence(2, 1), 2))
    assert isinstance(reply, Refusal)
    assert (reply.code, started) == ("policy", None)


def test_what_may_pass_is_told_once_and_then_tried_again() -> None:
    desk, command = Desk(attempt=2), learn()
    desk.receive(command)
    desk.finish(command, Refusal("temporary", "disk full"))
    assert desk.receive(command) == (Refusal("temporary", "disk full"), None)
    assert desk.receive(command) == (Working("learning"), command)


def test_what_cannot_pass_stays_refused() -> None:
    desk, command = Desk(attempt=2), learn()
    desk.receive(command)
    desk.finish(command, Refusal("invalid", "tokens"))
    assert [desk.receive(command)[0] for _ in range(2)] == [Refusal("invalid", "tokens")] * 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("x"), "policy"),
        (NotFound("x"), "invalid"),
        (Corrupt("x"), "invalid"),
        (Temporary("x"), "temporary"),
        (Permanent("x"), "unknown"),
    ],
)
def test_all_ranks_agree_on_what_the_first_one_says(error: Exception, code: str) -> None:
    assert verdict(["", vote(error), "temporary:other"]) == Refusal(  # type: ignore[arg-type]
        code, "rank 1: x; rank 2: other"
    )


@pytest.mark.parametrize(
    ("votes", "detail"),
    [
        (["invalid:x", "invalid:x"], "every rank: x"),
        (["invalid:x", "", "invalid:x"], "ranks 0, 2: x"),
        (["invalid:x", "invalid:y", "invalid:x"], "ranks 0, 2: x; rank 1: y"),
    ],
)
def test_what_several_ranks_say_is_said_once(votes: list[str], detail: str) -> None:
    found = verdict(votes)
    assert found is not None
    assert found.detail == detail


def test_no_complaint_is_no_refusal() -> None:
    assert verdict(["", ""]) is None


def test_storage_may_refuse_an_update_for_a_while_and_then_the_job_is_to_end() -> None:
    patience, full = Patience(seconds=120.0), Refusal("temporary", "No space left on device")
    assert patience.judge(full, 100.0) == full
    assert patience.judge(full, 219.0) == full
    told = patience.judge(full, 220.0)
    assert told == Refusal("storage", "in vain for 120 s: No space left on device")


def test_patience_begins_anew_once_anything_else_came_of_the_work() -> None:
    patience, full = Patience(seconds=120.0), Refusal("temporary", "No space left on device")
    patience.judge(full, 0.0)
    assert patience.judge(kept(3), 119.0) == kept(3)
    assert patience.judge(full, 130.0) == full
