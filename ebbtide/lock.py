"""One process per state folder: a lock that the kernel frees with its holder, and names it.

POSIX record locks rather than flock: to ask who holds one takes nothing, so a question can never
be in the way of a process that is starting, and the pid is the kernel's word about a living
process, not a number in a file that another process may bear by now.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = "up.lock"
_FLOCK = "hhqqi4x"
"""Linux's struct flock on 64-bit machines: type, whence, start, length, pid."""


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; raises BlockingIOError if another process does.

    While it is held this process must not open the file again: closing any handle frees it.
    """
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def holder(folder: Path) -> int | None:
    """Pid of the other process that holds the folder's lock, or None."""
    try:
        handle = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return None if kind == fcntl.F_UNLCK else pid
