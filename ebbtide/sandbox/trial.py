"""One program put to its tests, from outside the cell."""

from __future__ import annotations

import hmac
import os
import secrets
import select
import subprocess
import tempfile
import time
from contextlib import ExitStack
from typing import Any

import msgspec

from ebbtide.errors import Temporary
from ebbtide.sandbox.cell import Cell, scripts
from ebbtide.sandbox.memory import Memory

_LONGEST_VERDICT = 1 << 20
_DETAIL = 300
_START_SECONDS = 10.0
_LOOK_SECONDS = 0.02


class Limits(msgspec.Struct, frozen=True):
    """What a program may take. `test_seconds`: by the clock and test; `wall_seconds`: by all.

    `cpu_seconds` and `file_bytes` are per process, `memory_bytes` is of all its processes.
    """

    cpu_seconds: int = 5
    test_seconds: float = 5.0
    wall_seconds: float = 8.0
    memory_bytes: int = 512 << 20
    processes: int = 8
    file_bytes: int = 16 << 20
    output_bytes: int = 1 << 20


class Asserts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Python code that ends well if the program's functions are right."""

    code: str


class Prints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the program must print, given the input; space at the ends of lines is ignored."""

    stdin: str
    stdout: str


Test = Asserts | Prints


class Result(msgspec.Struct, frozen=True, array_like=True):
    """`fault`: timeout | memory | output, or empty."""

    passed: bool
    fault: str


class _Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nonce: str
    results: tuple[Result, ...]


def run(
    program: str, tests: tuple[Test, ...], *, limits: Limits, cell: Cell
) -> tuple[Result, ...] | None:
    """One result per test; None if the program broke what judges it, which is its own fault.

    Raises Temporary when the cell could not be started.
    """
    nonce = secrets.token_hex(16)
    said, late, words = _hear(_request(program, tests, limits, cell, nonce), limits, cell)
    lines = said.split(b"\n")
    hello, last = _verdict(lines[0], nonce), _verdict(lines[1], nonce) if len(lines) > 1 else None
    if hello is None:
        raise Temporary(f"the sandbox did not start: {words}")
    if last is not None and len(last.results) == len(tests):
        return last.results
    return tuple(Result(passed=False, fault="timeout") for _ in tests) if late else None


def _request(
    program: str, tests: tuple[Test, ...], limits: Limits, cell: Cell, nonce: str
) -> bytes:
    return msgspec.json.encode(
        {"program": program, "tests": tests, "limits": limits, "alone": cell.alone, "nonce": nonce}
    )


def _hear(request: bytes, limits: Limits, cell: Cell) -> tuple[bytes, bool, str]:
    """What the tester said, whether it was stopped by the clock, and how the start went wrong."""
    with ExitStack() as stack:
        files = {name: _memory(stack, data) for name, data in scripts().items()}
        asked = _memory(stack, request)
        heard, verdict = os.pipe()
        stack.callback(os.close, heard)
        words = stack.enter_context(tempfile.TemporaryFile())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ebbtide-cell-"))
        try:
            process = _start(cell, (asked, verdict), files, words=words, folder=folder)
        finally:
            os.close(verdict)
        try:
            memory = Memory(process.pid, most=limits.memory_bytes, alone=cell.alone)
            said, late = _read(heard, limits.wall_seconds, memory)
        finally:
            process.kill()  # the cell dies with its parent
            process.wait()
        words.seek(0)
        return said, late, words.read(_DETAIL).decode("utf-8", "replace").strip()


def _start(
    cell: Cell, ends: tuple[int, int], files: dict[str, int], *, words: Any, folder: str
) -> subprocess.Popen[bytes]:
    used = files if cell.alone else {}
    try:
        process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - the program is isolated by it
            cell.command(*ends, files=files),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            pass_fds=(*ends, *used.values()),
            env={},
            cwd="/" if cell.alone else folder,
            **cell.identity(),
        )
    except OSError as error:
        raise Temporary(f"the sandbox did not start: {error.strerror}") from None
    return process


def _memory(stack: ExitStack, data: bytes) -> int:
    """A descriptor that reads `data` from its beginning."""
    number = os.memfd_create("ebbtide")
    stack.callback(os.close, number)
    with open(os.dup(number), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def _read(source: int, seconds: float, memory: Memory) -> tuple[bytes, bool]:
    """All until the tester's end or its second line; True if the clock ended it."""
    said, until = b"", time.monotonic() + seconds + _START_SECONDS
    while said.count(b"\n") < 2 and len(said) <= _LONGEST_VERDICT:
        left = until - time.monotonic()
        if left <= 0:
            return said, True
        memory.look()
        if not select.select([source], [], [], min(left, _LOOK_SECONDS))[0]:
            continue
        if not (more := os.read(source, 65536)):
            break
        if not said:
            until = time.monotonic() + seconds
        said += more
    return said, False


def _verdict(line: bytes, nonce: str) -> _Verdict | None:
    try:
        found = msgspec.json.decode(line, type=_Verdict)
    except msgspec.DecodeError:
        return None
    return found if hmac.compare_digest(found.nonce, nonce) else None
