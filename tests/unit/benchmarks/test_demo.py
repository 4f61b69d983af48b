"""When a run of the demonstration counts."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.demo import is_sound

GOOD: dict[str, Any] = {"last": 0.85, "plain": 0.82, "lost": 0, "doubled": 0, "seconds": 300.0}


def test_a_whole_run_that_agrees_in_time_is_sound() -> None:
    assert is_sound(GOOD)


@pytest.mark.parametrize("fault", [{"lost": 1}, {"doubled": 1}, {"plain": 0.7}, {"seconds": 361.0}])
def test_a_run_with_a_fault_is_not_sound(fault: dict[str, Any]) -> None:
    assert not is_sound(GOOD | fault)
