"""Files by pattern, with a bound on what is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from ebbtide.errors import Refused

MOST_ENTRIES = 100_000
"""Well below a second on a local disk, far above what a data set is cut into."""


def matching(pattern: Path) -> list[Path]:
    """Files that `pattern` names, sorted; `**` is any depth of folders.

    Raises Refused once it has looked at MOST_ENTRIES entries: a `**` too near the root walks the
    whole disk, and nothing could stop the thread that does it.
    """
    parts = pattern.parts[1:] if pattern.anchor else pattern.parts
    return sorted(set(_files(Path(pattern.anchor or "."), parts, name=pattern)))


def below(folder: Path) -> list[Path]:
    """Files in `folder` at any depth, sorted; bounded likewise."""
    return sorted(set(_files(folder, ("**",), name=folder)))


def _files(start: Path, parts: Sequence[str], *, name: Path) -> Iterator[Path]:
    """Depth first, without recursion: neither folders nor patterns may be too deep for it."""
    parts = (*parts, "*") if parts[-1:] == ("**",) else parts
    budget = _Budget(name)
    open_ends = [(start, 0)]
    while open_ends:
        here, at = open_ends.pop()
        if at < len(parts):
            open_ends.extend(_onward(here, parts[at], at, budget))
        elif os.path.isfile(here):  # noqa: PTH113 - Path's raises for names that are too long
            yield here


def _onward(here: Path, part: str, at: int, budget: _Budget) -> Iterator[tuple[Path, int]]:
    """Where one part of the pattern leads from `here`, with the number of the part to come."""
    if part == "**":
        yield here, at + 1
        for entry in budget.entries(here):
            if entry.is_dir(follow_symlinks=False):
                yield here / entry.name, at
    elif _is_pattern(part):
        for entry in budget.entries(here):
            if fnmatchcase(entry.name, part):
                yield here / entry.name, at + 1
    else:
        yield here / part, at + 1


def _is_pattern(part: str) -> bool:
    return any(sign in part for sign in "*?[")


class _Budget:
    """Entries that may still be looked at for `name`."""

    def __init__(self, name: Path) -> None:
        self._name = name
        self._left = MOST_ENTRIES

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """What is in a folder; nothing for what is none, or may not be read, as shells do it."""
        try:
            found = os.scandir(folder)
        except (OSError, ValueError):  # the latter: a NUL or half a character in its name
            return
        with suppress(OSError), found:
            for entry in found:
                self._left -= 1
                if self._left < 0:
                    raise Refused(self._too_many(), field="uri")
                yield entry

    def _too_many(self) -> str:
        bound = f"{MOST_ENTRIES:,} entries of folders"
        return f"{self._name} would look at more than {bound}: name the folder more closely"
