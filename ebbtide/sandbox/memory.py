"""Looks from outside a cell how much memory the program in it holds, and kills what holds too much.

From outside, because a cell has no `/proc`; killed and not told, because nothing that is told in
time can be told of the wrong test.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

_PAGE = resource.getpagesize()


class Memory:
    """Of the program below process `root`: bubblewrap's where it is `alone`, else the tester's."""

    def __init__(self, root: int, *, most: int, alone: bool) -> None:
        self._root = root
        self._most = most
        self._alone = alone

    def look(self) -> None:
        """Kill the program if all its processes together hold more than they may."""
        if sum(map(_resident, self._program())) <= self._most:
            return
        with ExitStack() as stack:
            handles = {pid: handle for pid in self._program() if (handle := _handle(stack, pid))}
            still = set(self._program())  # a number that is still the program's is so for good
            for pid, handle in handles.items():
                if pid in still:
                    with suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)

    def _program(self) -> list[int]:
        """Its processes: all below the tester, and orphans, whom the cell's init has."""
        if not self._alone:
            return list(_below(self._root))
        found: list[int] = []
        for init in _children(self._root):
            tester, *orphans = _children(init) or [0]
            found += _below(tester) if tester else ()
            for orphan in orphans:
                found += [orphan, *_below(orphan)]
        return found


def _handle(stack: ExitStack, pid: int) -> int:
    try:
        number = os.pidfd_open(pid)
    except OSError:  # it has ended
        return 0
    stack.callback(os.close, number)
    return number


def _below(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _below(child)


def _children(pid: int) -> list[int]:
    """Those of all threads, of each the eldest first."""
    found: list[int] = []
    with suppress(OSError):  # it ended meanwhile
        for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
            found += map(int, (task / "children").read_text().split())
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
