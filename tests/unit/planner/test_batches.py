"""What of a closed step enters its batch, and with which advantages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide.rl.shaping import Penalty
from ebbtide.spec import RecordedSpec, RLHFJobSpec
from ebbtide.wire import (
    Accepted,
    Dispatch,
    GroupPlan,
    Invalid,
    PromptRef,
    Scored,
    StepPlan,
    Value,
    encode,
)
from services.planner.core.batches import candidates
from services.planner.core.config import Grpo, Recorded, configure
from services.planner.core.samples import OpenStep
from tests.unit.planner.builders import GRPO, UID, a_policy, a_ref, some_data


def closed(rewards: list[float | None], *, tokens: list[int], cut: int = -1) -> OpenStep:
    """One group; None is invalid, sample `cut` was cut at the limit."""
    size = len(rewards)
    prompt = PromptRef(a_ref("chunk"), 0)
    plan = GroupPlan(0, "p", prompt, size, "train", 1.0, 100, 9)
    step = OpenStep(StepPlan(0, a_policy(0), (plan,), 1, 0), UID)
    for i, reward in enumerate(rewards):
        finish = "length" if i == cut else "stop"
        ref, policy = a_ref("r"), step.plan.policy
        step.rollouts[i] = Accepted(step.key(i), Dispatch(1, 1, i), ref, policy, tokens[i], finish)
        score = Invalid("verifier") if reward is None else Value(reward, ())
        step.scores[i] = Scored(step.key(i), score, "s")
    return step


def advantages(step: OpenStep, **changes: Any) -> list[float]:
    work: Grpo = msgspec.structs.replace(GRPO, max_new_tokens=100, **changes)
    return [round(c.advantage, 6) for c in candidates(step, work)]


def test_invalid_samples_leave_the_baseline() -> None:
    step = closed([1.0, None, 0.0], tokens=[5, 5, 5])
    assert advantages(step) == [0.5, -0.5]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", [0.5, -0.5, -0.5, 0.5]),
        ("leave-one-out", [0.666667, -0.666667, -0.666667, 0.666667]),
        ("raw", [1.0, 0.0, 0.0, 1.0]),
    ],
)
def test_each_baseline_is_that_of_its_paper(scale: str, expected: list[float]) -> None:
    assert advantages(closed([1.0, 0.0, 0.0, 1.0], tokens=[5] * 4), scale=scale) == expected


def test_a_single_value_is_a_batch_only_where_no_baseline_is_needed() -> None:
    step = closed([1.0, None], tokens=[5, 5])
    assert advantages(step) == []
    assert advantages(step, scale="raw") == [1.0]


def test_a_length_penalty_comes_before_the_baseline() -> None:
    step = closed([1.0, 1.0], tokens=[10, 50])
    penalty = Penalty("linear", weight=1.0)
    assert advantages(step, length_penalty=penalty) == [0.2, -0.2]


def test_a_truncated_answer_can_be_left_out_and_stays_in_the_baseline() -> None:
    step = closed([1.0, 1.0, 0.0], tokens=[5, 5, 100], cut=2)
    assert advantages(step, keep_truncated=False) == [0.333333, 0.333333]


def spec_of(**algorithm: Any) -> RLHFJobSpec:
    return RLHFJobSpec.model_validate(
        {
            "model": {"uri": str(Path("m"))},
            "dataset": {"train": {"type": "jsonl", "uri": "rows.jsonl"}},
            "algorithm": algorithm,
            "training": {"total_steps": 1},
            "reward": {"components": ({"type": "exact", "name": "exact"},)},
        }
    )


@pytest.mark.parametrize(
    ("algorithm", "scale", "skips"),
    [
        ({"type": "grpo"}, "none", True),
        ({"type": "dapo"}, "group", True),
        ({"type": "gspo"}, "group", True),
        ({"type": "cispo", "entropy_coefficient": 0.1}, "group", False),
        ({"type": "rloo"}, "leave-one-out", True),
        ({"type": "rloo", "kl_coefficient": 0.1}, "leave-one-out", False),
        ({"type": "reinforce-plus-plus"}, "raw", False),
        ({"type": "ppo"}, "raw", False),
        ({"type": "reinforce-plus-plus", "baseline": "group"}, "none", False),
    ],
)
def test_each_algorithm_has_its_baseline_and_computes_what_moves(
    algorithm: dict[str, Any], scale: str, skips: bool
) -> None:
    work = configure(spec_of(**algorithm), job_uid=UID, data=some_data()).work
    assert isinstance(work, Grpo)
    assert (work.scale, work.skip_zero) == (scale, skips)
    assert encode(work), "a part of the plan's digests"


def test_a_job_on_recorded_batches_samples_nothing_and_evaluates_nothing() -> None:
    recorded = RecordedSpec(uid="other", attempt=2, first_step=4)
    spec = spec_of(type="grpo").model_copy(update={"recorded": recorded})
    config = configure(spec, job_uid=UID, data=some_data())
    assert config.work == Recorded("other", 2, 4)
    assert config.last_step == config.total_steps - 1
    assert encode(config.work), "a part of the plan's digests"
