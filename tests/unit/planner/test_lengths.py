"""The predictor is a fold over the ledger: the same records, the same state, whoever reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.wire import (
    Accepted,
    Adopted,
    Committed,
    Dispatch,
    Epoch,
    GroupPlan,
    PromptRef,
    StepPlan,
)
from services.planner.core.lengths import Lengths, make_lengths
from services.planner.core.samples import OpenStep
from services.planner.core.steering import Steering
from tests.unit.planner.builders import UID, a_config, a_policy, a_ref, some_data
from tests.unit.planner.world import World


@given(moments=st.lists(st.integers(1, 60), min_size=1, max_size=5), ewma=st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_planner_that_takes_over_at_any_moment_predicts_the_same(
    moments: list[int], ewma: bool
) -> None:
    steering = Steering(prediction="ewma" if ewma else "blend")
    world = World(a_config(steps=3, steering=steering), some_data())
    for rounds in moments:
        for _ in range(rounds):
            if not world.outcome:
                world.one_round()
        world.perform(world.seat)
        live = world.seat.planner.book.lengths
        assert world.replayed().lengths.dump() == live.dump()
        world.kill_planner()


def test_each_accepted_rollout_is_observed_once_over_all_attempts() -> None:
    world = World(a_config(), some_data())
    while not any(isinstance(r, Accepted) for r in world.records):
        world.one_round()
    world.kill_learner()
    world.calm()
    accepted = sum(isinstance(r, Accepted) for r in world.records)
    assert any(isinstance(r, Adopted) for r in world.records)
    assert world.seat.planner.book.lengths.seen == accepted


def a_step(step: int, *, prompts: int = 6, held_out: float | None = None) -> OpenStep:
    temperatures = [1.0] * prompts + ([held_out] if held_out is not None else [])
    groups = tuple(
        GroupPlan(g, f"p{g % prompts}", PromptRef(a_ref("chunk"), g), 2, "train", t, 400, 9)
        for g, t in enumerate(temperatures)
    )
    return OpenStep(StepPlan(step, a_policy(step), groups, 1, 0), UID)


def end(lengths: Lengths, step: OpenStep, sample: int, tokens: int, finish: str = "stop") -> None:
    key = step.key(sample)
    ref, policy = a_ref("r"), step.plan.policy
    record = Accepted(key, Dispatch(1, 1, sample), ref, policy, tokens, finish)
    step.rollouts[sample] = record
    lengths.ended(step, sample, record)


def a_round(lengths: Lengths, tokens: list[int], finish: str = "stop") -> None:
    step = a_step(0, prompts=len(tokens))
    lengths.opened(step.plan)
    for sample in range(step.size):
        end(lengths, step, sample, tokens[sample // 2], finish)


def median(lengths: Lengths, step: OpenStep, sample: int) -> float:
    forecast = lengths.forecast(step)
    assert forecast is not None
    return float(forecast.at(0.5)[sample])


@pytest.mark.parametrize("prediction", ["blend", "ewma"])
def test_what_a_prompt_was_long_before_is_expected_again(prediction: str) -> None:
    lengths = make_lengths(prediction, limit=400)
    a_round(lengths, [10, 20, 40, 80, 160, 320])
    lengths.opened(a_step(1).plan)
    found = [median(lengths, a_step(1), 2 * g) for g in range(6)]
    assert found == sorted(found)
    assert found[-1] > 2 * found[0]


def test_siblings_are_heard_by_the_forecast_of_now_and_not_by_that_of_the_opening() -> None:
    lengths = make_lengths("blend", limit=400)
    a_round(lengths, [50] * 6)
    step = a_step(1)
    lengths.opened(step.plan)
    before = median(lengths, step, 1)
    end(lengths, step, 0, 390)
    now = lengths.forecast_now(step, np.array([1]), np.array([0], dtype=np.int32))
    assert median(lengths, step, 1) == before
    assert now is not None
    assert now.at(0.5)[0] > 1.2 * before


def test_an_answer_that_the_limit_cut_is_taken_as_longer_than_one_that_ended_there() -> None:
    cut, whole = make_lengths("blend", limit=400), make_lengths("blend", limit=400)
    a_round(cut, [200] * 6, "length")
    a_round(whole, [200] * 6, "stop")
    cut.opened(a_step(1).plan)
    whole.opened(a_step(1).plan)
    assert median(cut, a_step(1), 0) > 1.1 * median(whole, a_step(1), 0)


def test_a_prompt_at_another_temperature_has_lengths_of_its_own() -> None:
    lengths = make_lengths("ewma", limit=400)
    a_round(lengths, [10, 390])
    step = a_step(1, prompts=2, held_out=0.0)
    lengths.opened(step.plan)
    assert median(lengths, step, 0) == pytest.approx(10)
    assert median(lengths, step, 4) == pytest.approx(200)  # the mean of all: it was never asked so


def test_without_a_predictor_nothing_is_expected() -> None:
    lengths = make_lengths("none", limit=400)
    a_round(lengths, [10, 390])
    lengths.opened(a_step(1).plan)
    assert lengths.forecast(a_step(1)) is None
    assert not lengths.informed
    assert lengths.dump() == b""


def test_a_step_that_a_new_attempt_opens_again_forgets_nothing() -> None:
    world = World(a_config(steps=3), some_data())
    while not any(isinstance(r, Committed) for r in world.records):
        world.one_round()
    seen = world.seat.planner.book.lengths.seen
    world.kill_learner()
    assert isinstance(world.records[-1], Epoch)
    assert world.seat.planner.book.lengths.seen == seen > 0
