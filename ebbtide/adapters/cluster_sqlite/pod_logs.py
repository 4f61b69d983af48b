"""Logs of pods as files that outlive them: one file a pod, one older file beside it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from ebbtide.ports import Clock

FOLLOW_SECONDS = 0.2
_PIECE = 1 << 20
"""Bytes of a log that are in memory at a time while it is rotated."""


def log_file(root: Path, namespace: str, pod: str) -> Path:
    """Where the log of a pod lies; names are checked by the object store."""
    return root / namespace / f"{pod}.log"


def older_file(path: Path) -> Path:
    """Where the part before the last rotation lies."""
    return path.with_name(f"{path.name}.1")


def read_lines(path: Path, tail: int | None) -> list[bytes]:
    """The last `tail` lines, or all, without line ends; the older file counts too."""
    kept: deque[bytes] = deque(maxlen=tail)
    for part in (older_file(path), path):
        if part.exists():
            with part.open("rb") as file:
                kept.extend(line.rstrip(b"\n") for line in file)
    return list(kept)


async def follow_lines(
    path: Path, *, tail: int | None, clock: Clock, ended: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """The last lines, then new ones as they come until `ended`; a rotation is followed."""
    before = _read_from(older_file(path), 0)
    now = _read_from(path, 0)
    at = len(now)
    *lines, rest = (before + now).split(b"\n")
    for line in lines[-tail:] if tail else [] if tail == 0 else lines:
        yield line
    while True:
        over = await ended()
        fresh, at = _fresh(path, at)
        *lines, rest = (rest + fresh).split(b"\n")
        for line in lines:
            yield line
        if over and not fresh:
            break
        await clock.sleep(FOLLOW_SECONDS)
    if rest:
        yield rest


def _fresh(path: Path, at: int) -> tuple[bytes, int]:
    size = path.stat().st_size if path.exists() else 0
    at = 0 if size < at else at
    fresh = _read_from(path, at)
    return fresh, at + len(fresh)


def rotate(path: Path, limit: int) -> bool:
    """Move what the file holds to the older file once it exceeds `limit` bytes.

    The writer keeps its descriptor (O_APPEND), so the content is copied until nothing new came
    and the file is then cut to nothing, as logrotate's copytruncate does. No more than the last
    `limit` bytes are copied, and as many that came meanwhile: whoever writes faster than they are
    copied loses what is between, and neither fills the disk twice nor is followed for ever.
    """
    if not path.exists() or path.stat().st_size <= limit:
        return False
    with path.open("rb") as file, older_file(path).open("wb") as older:
        file.seek(-limit, os.SEEK_END)
        left = 2 * limit
        while left and (fresh := file.read(min(left, _PIECE))):
            older.write(fresh)
            left -= len(fresh)
        os.truncate(path, 0)
    return True


class Removed(NamedTuple):
    """What went."""

    files: int = 0
    bytes: int = 0


def remove_stale(root: Path, before: float, needed: Callable[[str, str], bool]) -> Removed:
    """Remove logs with no line since Unix time `before`, but not those that are `needed`.

    `needed` is asked with the namespace and the pod's name.
    """
    gone = Removed()
    for path in root.glob("*/*.log"):
        parts = [part for part in (path, older_file(path)) if part.exists()]
        stats = [part.stat() for part in parts]
        if any(one.st_mtime >= before for one in stats) or needed(path.parent.name, path.stem):
            continue
        for part in parts:
            part.unlink(missing_ok=True)
        size = sum(one.st_size for one in stats)
        gone = Removed(gone.files + len(parts), gone.bytes + size)
    return gone


def _read_from(path: Path, at: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(at)
        return file.read()
