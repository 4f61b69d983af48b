"""What a step's report says of training samples that are alike."""

from __future__ import annotations

import msgspec

from ebbtide.wire import Accepted, Dispatch, GroupPlan, Invalid, PromptRef, Scored, StepPlan, Value
from services.planner.core.samples import OpenStep
from services.planner.core.slicing import MOST, slices
from tests.unit.planner.builders import UID, a_policy, a_ref

DIGESTS = (("dataset", "0123456789abcdef"),)


def a_step(*tasks: str) -> OpenStep:
    """Groups of two; the last one is held out."""
    groups = tuple(
        GroupPlan(n, "p", PromptRef(a_ref("p"), 0), 2, "train", 1.0, 8, 3, task)
        for n, task in enumerate(tasks)
    )
    held_out = GroupPlan(len(tasks), "p", PromptRef(a_ref("p"), 0), 2, "eval", 1.0, 8, 3, "sums")
    plan = StepPlan(0, a_policy(0), (*groups, held_out), 1, 0, DIGESTS)
    return OpenStep(plan, UID)


def ended(step: OpenStep, number: int, tokens: int, score: Value | Invalid | None) -> None:
    key = step.key(number)
    hand = Dispatch(1, 1, number)
    step.accepted(number, Accepted(key, hand, a_ref("r"), a_policy(0), tokens, "stop"))
    if score:
        step.scored(number, Scored(key, score, "scorer-of-today"))


def test_training_samples_are_told_apart_in_six_ways() -> None:
    step = a_step("sums", "words")
    ended(step, 0, 10, Value(1.0, ()))
    ended(step, 1, 100, Invalid("raised"))
    ended(step, 2, 10, Value(0.0, (), "format"))
    ended(step, 4, 10, Value(1.0, ()))  # held out
    found = {(one.by, one.value): one for one in slices(step, threshold=1.0)}
    assert set(found) == {
        ("task", "sums"),
        ("task", "words"),
        ("length", "1-64"),
        ("length", "65-256"),
        ("prompts", "0123456789ab"),
        ("reward", "scorer-of-to"),
        ("sign", "positive"),
        ("sign", "zero"),
        ("age", "0"),
    }
    assert [found["task", "sums"].samples, found["task", "sums"].valued] == [2, 1]
    assert (found["length", "1-64"].reward, found["length", "1-64"].passed) == (0.5, 1)
    assert found["task", "words"].faulty == 1


def test_lengths_are_told_by_the_sign_of_the_reward() -> None:
    step = a_step("sums", "words")
    for number, reward in enumerate((-0.5, 2.0, 0.0, 1.0)):
        ended(step, number, 10 * (number + 1), Value(reward, ()))
    found = {one.value: one.tokens for one in slices(step, threshold=1.0) if one.by == "sign"}
    assert found == {"negative": 10, "zero": 30, "positive": 30}


def test_however_many_tasks_there_are_few_are_named() -> None:
    step = a_step(*(f"t{n:02}" for n in range(40)))
    for number in range(80):
        ended(step, number, 5, Value(1.0, ()))
    found = [one for one in slices(step, threshold=1.0) if one.by == "task"]
    assert len(found) == MOST["task"] + 1
    assert sum(one.samples for one in found) == 80
    assert next(one for one in found if one.value == "other").samples == 56


def test_samples_of_older_policies_are_told_apart() -> None:
    step = a_step("sums", "words")
    for number, policy in enumerate((9, 8, 3, 5)):
        key = step.key(number)
        rollout = Accepted(key, Dispatch(1, 1, number), a_ref("r"), a_policy(policy), 5, "stop")
        step.accepted(number, rollout)
    step.plan = msgspec.structs.replace(step.plan, policy=a_policy(9))
    found = {one.value: one.samples for one in slices(step, threshold=1.0) if one.by == "age"}
    assert found == {"0": 1, "1": 1, "3+": 2}
