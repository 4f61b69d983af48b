"""Prints values: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

STYLES = {
    "Running": "green",
    "Complete": "bold green",
    "Failed": "bold red",
    "Cancelled": "yellow",
    "Suspended": "cyan",
    "Draining": "yellow",
}


def console() -> Console:
    """Standard output; wide enough not to cut names when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    json.dump(plain(value), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_json_line(value: Any) -> None:
    """One JSON value on one line, at once."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """JSON values of a model, or of a list of models, by their wire names."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, folds: str = "") -> Table:
    """A plain table; columns that begin with '>' are aligned to the right.

    The column `folds` takes more lines where there is little room, so that others keep theirs.
    """
    found = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        name = column.lstrip(">")
        found.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=name != folds,
            overflow="fold" if name == folds else "ellipsis",
        )
    for row in rows:
        found.add_row(*row)
    return found


def state(name: str) -> str:
    """The state in its colour."""
    style = STYLES.get(name)
    return f"[{style}]{name}[/]" if style else name


def money(value: float | None, currency: str) -> str:
    """An amount, or `unknown`: a missing price is never shown as 0."""
    return "unknown" if value is None else f"{value:.4f} {currency}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
