"""What a process says, on its way into the blob store: bounded, whatever it says (pure).

`Backlog` holds lines until they are written, at most so many bytes; more are left out and
counted, so that neither a flood nor a store that does not answer takes memory. `Parts` cuts a log
into objects (`paths.log_part`), at most so many bytes in all: the first part stays, which tells how
the process began, and the newest do. `ebbtide.adapters.log_keeper` does the writing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

import msgspec

WAITING_BYTES = 1 << 20
"""Of lines that are not yet written."""
LINE_BYTES = 64 << 10
"""A longer line is cut."""
PART_BYTES = 128 << 10
_SHORTEST_SECRET = 6
"""Anything shorter would star half of every line."""
_STARS = "***"


class Backlog:
    """Lines of one process, from any thread. `role`: whose they are; `secrets`: starred in them."""

    def __init__(
        self, *, role: str, secrets: Sequence[str] = (), limit: int = WAITING_BYTES
    ) -> None:
        self.role = role
        forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1])}
        self._secrets = tuple(form for form in forms if len(form) >= _SHORTEST_SECRET)
        self._limit = limit
        self._lines: list[bytes] = []
        self._bytes = self._left_out = 0
        # Whoever is interrupted here may say something too.
        self._lock = threading.RLock()

    def starred(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, _STARS)
        return text

    def add(self, text: str) -> None:
        """Take one line, or what else was written at once; never waits, never fails."""
        line = _cut(text.encode("utf-8", "replace"))
        with self._lock:
            if self._bytes + len(line) > self._limit:
                self._left_out += 1
                return
            self._lines.append(line)
            self._bytes += len(line)

    def take(self) -> tuple[bytes, int]:
        """All that waits, and how many lines were left out since the last time."""
        with self._lock:
            lines, self._lines = self._lines, []
            left_out, self._left_out = self._left_out, 0
            self._bytes = 0
        return b"".join(lines), left_out


def _cut(line: bytes) -> bytes:
    if len(line) <= LINE_BYTES:
        return line if line.endswith(b"\n") else line + b"\n"
    more = len(line) - LINE_BYTES
    return line[:LINE_BYTES] + f" ... {more} bytes more\n".encode()


class Change(msgspec.Struct, frozen=True):
    """Parts to write, whole, by number; parts to delete."""

    put: dict[int, bytes]
    drop: tuple[int, ...]


class Parts:
    """A log in parts from number `first` on, about `most_bytes` in all."""

    def __init__(self, *, first: int, most_bytes: int, part_bytes: int = PART_BYTES) -> None:
        self._first, self._number = first, first
        self._part_bytes = min(part_bytes, max(1, most_bytes // 2))
        self._most_bytes = most_bytes
        self._sizes: dict[int, int] = {}
        self._open = b""

    def add(self, lines: bytes) -> Change:
        """Append whole lines: what is to be written and deleted for it."""
        put: dict[int, bytes] = {}
        for line in lines.splitlines(keepends=True):
            if self._open and len(self._open) + len(line) > self._part_bytes:
                self._number += 1
                self._open = b""
            self._open += line
            put[self._number] = self._open
            self._sizes[self._number] = len(self._open)
        gone = self._gone()
        return Change({n: data for n, data in put.items() if n not in gone}, tuple(gone))

    def _gone(self) -> list[int]:
        """The oldest parts but the first, until the rest fits."""
        gone: list[int] = []
        over = sum(self._sizes.values()) - self._most_bytes
        for number in sorted(self._sizes.keys() - {self._first, self._number}):
            if over <= 0:
                break
            over -= self._sizes.pop(number)
            gone.append(number)
        return gone
