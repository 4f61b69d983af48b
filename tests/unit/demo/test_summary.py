"""What the demonstration says of itself."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ebbtide.demo.summary import show


def shown(first: float | None, last: float | None) -> str:
    figures = {
        "steps": 41,
        "eval_reward_first": first,
        "eval_reward_last": last,
        "samples_expected": 10,
        "samples_accepted": 10,
        "samples_lost": 0,
        "samples_doubled": 0,
        "actors_min": 1,
        "actors_max": 4,
        "migrations": 5,
        "prefill_tokens_computed": 1000,
        "prefill_tokens_saved": 4000,
        "seconds": 61.23,
        "cost": {"total": None, "currency": "USD"},
    }
    console = Console(file=io.StringIO(), width=200)
    show(figures, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_are_shown_and_an_unknown_cost_is_not_called_zero() -> None:
    text = shown(0.3456, 0.8)
    assert "0.346 -> 0.800" in text
    assert "unknown" in text
    assert "1 to 4" in text
    assert "1,000, 4,000" in text
    assert "removes the sloppiness" in text


@pytest.mark.parametrize(("first", "last"), [(0.3, 0.31), (0.5, 0.2), (None, None)])
def test_a_run_that_learned_nothing_does_not_boast(first: float | None, last: float | None) -> None:
    assert "did not rise" in shown(first, last)
