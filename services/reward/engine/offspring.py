"""Finds and kills all that descends from a process, whatever sessions and groups it moved to.

Read from /proc, since no other way tells a process of its grandchildren.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_ROUNDS = 50
"""A process may fork while it is looked for: look again, but not for ever."""
_DEAD = frozenset("ZX")


def kill_below(ancestor: int) -> None:
    """Kill every descendant of `ancestor`, and what these forked meanwhile."""
    for _ in range(_ROUNDS):
        living = below(ancestor)
        if not living:
            return
        for pid in living:
            with suppress(
                ProcessLookupError, PermissionError
            ):  # the latter: it became another user
                os.kill(pid, signal.SIGKILL)


def below(ancestor: int) -> list[int]:
    """Descendants of `ancestor` that live, parents first."""
    children: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
    for pid, parent, alive in _processes():
        children[parent].append((pid, alive))
    found: list[int] = []
    ahead = [ancestor]
    while ahead:
        for pid, alive in children.pop(ahead.pop(), ()):
            ahead.append(pid)
            found += [pid] if alive else []
    return found


def _processes() -> list[tuple[int, int, bool]]:
    """(pid, parent's pid, whether it lives) of every process that is seen here."""
    found: list[tuple[int, int, bool]] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                stat = (folder / "stat").read_text("utf-8", "replace")
                state, parent = stat.rpartition(")")[2].split(maxsplit=2)[:2]
                found.append((int(folder.name), int(parent), state not in _DEAD))
    return found
