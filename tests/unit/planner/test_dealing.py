"""From a recorded layout to queues, and whether waiting samples should move."""

from __future__ import annotations

import pytest

from ebbtide.wire import Decided, Dispatch, Dispatched, GroupPlan, PromptRef, StepPlan, pack_ints
from services.planner.core.dealing import seat, shares_of, weights_of
from services.planner.core.samples import OpenStep
from services.planner.core.workload import Workload
from tests.unit.planner.builders import UID, a_policy, a_ref


def a_step(groups: int = 4) -> OpenStep:
    prompt = PromptRef(a_ref("chunk"), 0)
    plans = tuple(GroupPlan(g, f"p{g}", prompt, 2, "train", 1.0, 100) for g in range(groups))
    return OpenStep(StepPlan(0, a_policy(0), plans, 2, 0), UID)


def a_layout(*share_of: int) -> Decided:
    return Decided(0, 2, max(share_of) + 1, pack_ints(share_of), b"")


def out(step: OpenStep, sample: int, actor: str) -> None:
    record = Dispatched(step.key(sample), Dispatch(1, 1, sample), actor, step.plan.policy)
    step.dispatched(sample, record)


LAYOUT = a_layout(0, 0, 0, 0, 1, 1, 1, 1)
EXPECTED = [10.0, 10.0, 90.0, 90.0, 20.0, 20.0, 5.0, 5.0]


def test_the_longest_groups_are_handed_out_first_each_in_one_piece() -> None:
    assert shares_of(a_step(), LAYOUT, EXPECTED) == [[2, 3, 0, 1], [4, 5, 6, 7]]


def test_what_is_out_already_is_not_dealt_again() -> None:
    step = a_step()
    out(step, 2, "a")
    assert shares_of(step, LAYOUT, EXPECTED) == [[3, 0, 1], [4, 5, 6, 7]]


def test_a_share_weighs_its_longest_answer_or_what_each_slot_has_to_do() -> None:
    assert weights_of(LAYOUT, EXPECTED, slots=64) == [90.0, 20.0]
    assert weights_of(LAYOUT, EXPECTED, slots=1) == [200.0, 50.0]


def test_who_is_there_gets_the_heaviest_and_the_lightest_is_kept_for_who_comes() -> None:
    shares = [[1], [2], [3]]
    layout = a_layout(0, 1, 2)
    seated, kept = seat(a_step(), layout, shares, [5.0, 9.0, 7.0], ["a", "b"])
    assert seated == {"a": [2], "b": [3]}
    assert kept == [[1]]


def test_more_actors_than_shares_leave_some_without() -> None:
    seated, kept = seat(a_step(), a_layout(0), [[1]], [1.0], ["a", "b"])
    assert seated == {"a": [1], "b": []}
    assert kept == []


def test_after_a_restart_each_goes_on_with_the_share_that_it_has() -> None:
    step = a_step()
    out(step, 5, "a")
    out(step, 1, "b")
    shares = shares_of(step, LAYOUT, EXPECTED)
    seated, kept = seat(step, LAYOUT, shares, [90.0, 20.0], ["a", "b"])
    assert seated == {"a": [4, 6, 7], "b": [2, 3, 0]}
    assert kept == []


@pytest.mark.parametrize(
    ("mine", "theirs", "slots", "moves"),
    [
        ([], [0, 1, 4, 5], 1, True),  # an idle one helps
        ([], [2], 4, False),  # one answer ends no sooner elsewhere
        ([2], [0, 1, 4, 5], 4, False),  # one that has a long answer stays with it
        ([2], [0, 1, 3, 4, 5], 1, True),  # unless the others end later still
    ],
)
def test_samples_move_only_where_they_end_sooner(
    mine: list[int], theirs: list[int], slots: int, *, moves: bool
) -> None:
    work = Workload(a_step(), EXPECTED)
    assert work.sooner(mine, theirs, theirs[-1:], slots) is moves


def test_what_is_written_counts_no_more_and_what_is_late_counts_a_little() -> None:
    step = a_step()
    out(step, 2, "a")
    work = Workload(step, EXPECTED)
    assert work.rest(2) == 90.0
    step.progressed(2, Dispatch(1, 1, 2), 60)
    assert work.rest(2) == 30.0
    step.progressed(2, Dispatch(1, 1, 2), 100)
    assert work.rest(2) == pytest.approx(9.0)
