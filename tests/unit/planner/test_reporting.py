"""What a step's report says of its training samples as a whole."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.wire import Value
from services.planner.core.reporting import _rewards, _sampling
from services.planner.core.samples import OpenStep
from tests.unit.planner.builders import UID, a_policy
from tests.unit.planner.test_slicing import a_step, ended


def test_the_pass_rate_is_that_of_training_samples_at_the_threshold() -> None:
    step = a_step("sums", "words")
    for number, reward in enumerate((1.0, 0.5, 0.0)):
        ended(step, number, 10, Value(reward, ()))
    ended(step, 4, 10, Value(1.0, ()))  # held out
    found = _rewards(step, 0.5)
    assert found is not None
    assert found.pass_rate == pytest.approx(2 / 3)


def test_the_share_of_timed_out_answers_is_that_of_valued_training_samples() -> None:
    step = a_step("sums", "words")
    for number, fault in enumerate(("timeout", "crash", "")):
        ended(step, number, 10, Value(0.0, (), fault))
    ended(step, 4, 10, Value(0.0, (), "timeout"))  # held out
    found = _rewards(step, 0.5)
    assert found is not None
    assert found.timed_out == pytest.approx(1 / 3)


def test_the_age_of_samples_is_counted_in_versions_of_the_policy() -> None:
    step = OpenStep(msgspec.structs.replace(a_step("sums").plan, policy=a_policy(2)), UID)
    assert _sampling(step) is None
    ended(step, 0, 10, None)
    found = _sampling(step)
    assert found is not None
    assert (found.age, found.oldest) == (2.0, 2)
    assert (found.temperature, found.max_new_tokens, found.group_size) == (1.0, 8, 2)
