"""Processes of pods: start them in two phases, adopt, signal, learn their end.

Used by the process runner. A process is named by its pid and the kernel's start time, so a number
that was used again is never signalled. A start first makes a process that waits (`Held`); it runs
the pod's program only after `go`, when its pid is on record.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

ADOPTED_POLL_SECONDS = 0.25
_WAIT_FOR_GO = 'read -r go && exec "$@" </dev/null'


class Started(msgspec.Struct, frozen=True):
    """A process. `start`: clock ticks since boot, from /proc."""

    pid: int
    start: int


class Held(msgspec.Struct, frozen=True):
    """A process that waits for `go` before it becomes the pod's program."""

    process: Started
    go: Callable[[], None]

    def drop(self) -> None:
        """End it; it has done nothing."""
        send(self.process, signal.SIGKILL)


class Exit(msgspec.Struct, frozen=True):
    """How a process ended; both None if nobody could tell."""

    code: int | None = None
    signal: int | None = None


class Program(msgspec.Struct, frozen=True):
    """What to start, and where its output goes. `title` is for process lists.

    `python` stands for the word python at the beginning of the command.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    folder: Path
    title: str
    python: str = sys.executable


def exit_of(code: int) -> Exit:
    """From a code that is negative for a signal."""
    return Exit(code=code) if code >= 0 else Exit(signal=-code)


def start_time(pid: int) -> int | None:
    """When the kernel started `pid`, in ticks; None if it is not there or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def is_alive(process: Started) -> bool:
    """Whether this very process still runs."""
    return start_time(process.pid) == process.start


def send(process: Started, number: signal.Signals) -> None:
    """Signal the process, if it is still this one."""
    if is_alive(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def watch_adopted(process: Started, ended: Callable[[Exit], None]) -> None:
    """Call `ended` once a process that is not our child is over; how it ended nobody knows."""
    while is_alive(process):  # noqa: ASYNC110 - the kernel sends no event for another's child
        await asyncio.sleep(ADOPTED_POLL_SECONDS)
    ended(Exit())


class Cold:
    """Starts programs as children of the runner."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(self, program: Program, *, ended: Callable[[Exit], None]) -> Held:
        """Start; `ended` is called once when the process is over."""
        first, *rest = program.command
        command = [program.python if first == "python" else first, *rest]
        reads, tells = os.pipe()
        try:
            child = await self._spawn(program, command, reads)
        except BaseException:
            os.close(tells)
            raise
        finally:
            os.close(reads)
        task = asyncio.create_task(self._wait(child, ended), name=f"wait-{child.pid}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return Held(Started(child.pid, start_time(child.pid) or 0), lambda: _go(tells))

    async def _spawn(
        self, program: Program, command: Sequence[str], reads: int
    ) -> asyncio.subprocess.Process:
        with program.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _WAIT_FOR_GO, program.title, *command),
                env=dict(program.env),
                cwd=program.folder,
                stdin=reads,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def _wait(self, child: asyncio.subprocess.Process, ended: Callable[[Exit], None]) -> None:
        ended(exit_of(await child.wait()))


def _go(tells: int) -> None:
    with suppress(BrokenPipeError):  # it was killed while it waited
        os.write(tells, b"go\n")
    os.close(tells)
