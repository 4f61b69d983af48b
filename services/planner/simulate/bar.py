"""How far a long simulation is, as a bar on standard error; nothing where that is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Tell = Callable[[int, str], None]
"""Told how many parts are done, and what comes next."""


@contextmanager
def told(parts: int, console: Console | None = None) -> Iterator[Tell]:
    """Draws a bar of so many parts until the work is over."""
    shown = console or Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    words = TextColumn("{task.description}")
    with Progress(
        *columns, words, console=shown, transient=True, disable=not shown.is_terminal
    ) as progress:
        task = progress.add_task("starting", total=parts)
        yield lambda done, next_one: progress.update(
            task, completed=done, description=next_one, refresh=True
        )
