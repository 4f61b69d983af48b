"""What the demonstration showed, in a few honest lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_ROSE = (
    "What it shows: the warm start ends with sloppy answers, and reinforcement removes the"
    " sloppiness. No new skill appears in two minutes on two cores: answers drawn without"
    " randomness were good before."
)
_FLAT = "The held-out reward did not rise: with learning rate 0 that is right, otherwise it is not."
_RISE = 0.1


def show(figures: Mapping[str, Any], console: Console) -> None:
    """Print the table and what it means."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    for label, value in _rows(figures):
        table.add_row(label, value)
    console.print(table)
    first, last = figures["eval_reward_first"], figures["eval_reward_last"]
    console.print(_ROSE if None not in (first, last) and last - first >= _RISE else _FLAT)


def _rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    first, last = figures["eval_reward_first"], figures["eval_reward_last"]
    cost = figures["cost"]
    money = "unknown" if cost["total"] is None else f"{cost['total']:.4f} {cost['currency']}"
    return [
        ("steps", str(figures["steps"])),
        ("held-out reward (T=1)", f"{_number(first)} -> {_number(last)}"),
        ("samples expected", str(figures["samples_expected"])),
        ("samples accepted", str(figures["samples_accepted"])),
        ("samples lost", str(figures["samples_lost"])),
        ("samples doubled", str(figures["samples_doubled"])),
        ("decode actors", f"{figures['actors_min']} to {figures['actors_max']}"),
        ("samples moved while they ran", str(figures["migrations"])),
        ("prompt tokens computed, saved", _prompts(figures)),
        ("seconds", f"{figures['seconds']:.1f}"),
        ("cost", money),
    ]


def _prompts(figures: Mapping[str, Any]) -> str:
    return f"{figures['prefill_tokens_computed']:,}, {figures['prefill_tokens_saved']:,}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
