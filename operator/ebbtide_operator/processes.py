"""Processes of pods: start them cold or from the warmed parent, adopt, signal, learn their end.

Used by the process runner alone. A process is named by its pid and the kernel's start time, so a
number that was used again is never signalled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ebbtide.errors import DeadlineExceeded, Permanent
from ebbtide.logs import Log
from ebbtide_operator.zygote import Ended, Forked, Message, Request, Warm

ADOPTED_POLL_SECONDS = 0.25
FORK_SECONDS = 30.0
WARM_SECONDS = 300.0


class Started(msgspec.Struct, frozen=True):
    """A process. `start`: clock ticks since boot, from /proc."""

    pid: int
    start: int


class Exit(msgspec.Struct, frozen=True):
    """How a process ended; both None if nobody could tell."""

    code: int | None = None
    signal: int | None = None


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
        os.kill(process.pid, number)


class Cold:
    """Starts programs as children of the runner."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        log: Path,
        folder: Path,
        ended: Callable[[Exit], None],
    ) -> Started:
        """Start `command`; `ended` is called once when it is over."""
        program = [sys.executable if command[0] == "python" else command[0], *command[1:]]
        with log.open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                *program,
                env=dict(env),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        task = asyncio.create_task(self._wait(child, ended), name=f"wait-{child.pid}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return Started(child.pid, start_time(child.pid) or 0)

    async def _wait(self, child: asyncio.subprocess.Process, ended: Callable[[Exit], None]) -> None:
        code = await child.wait()
        ended(Exit(code=code) if code >= 0 else Exit(signal=-code))


async def watch_adopted(process: Started, ended: Callable[[Exit], None]) -> None:
    """Call `ended` once a process that is not our child is over; how it ended nobody knows."""
    while is_alive(process):  # noqa: ASYNC110 - the kernel sends no event for another's child
        await asyncio.sleep(ADOPTED_POLL_SECONDS)
    ended(Exit())


class Nursery:
    """The warmed parent, seen from the runner. A parent that dies is made anew."""

    def __init__(self, *, modules: Sequence[str], log: Log) -> None:
        self._modules = tuple(modules)
        self._log = log
        self._warm = asyncio.Event()
        self._tickets = 0
        self._forked: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, Callable[[Exit], None]] = {}
        self._early: dict[int, Exit] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep a warmed parent; runs until it is cancelled."""
        while True:
            await self._one_parent()
            self._log.warning("the warmed parent ended; starting another")
            self._forget_parent()
            await asyncio.sleep(1.0)

    async def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        log: Path,
        folder: Path,
        ended: Callable[[Exit], None],
    ) -> Started:
        """Fork `python -m MODULE ARG...`; waits until the parent is warm."""
        async with asyncio.timeout(WARM_SECONDS):
            await self._warm.wait()
        if list(command[:2]) != ["python", "-m"]:
            raise Permanent(f"a warm pod's command must be python -m MODULE, not {command}")
        self._tickets += 1
        future = asyncio.get_running_loop().create_future()
        self._forked[self._tickets] = future
        request = Request(self._tickets, command[2], tuple(command[3:]), env, str(log), str(folder))
        assert self._writer is not None, "warm means that there is a parent"
        self._writer.write(msgspec.json.encode(request) + b"\n")
        try:
            async with asyncio.timeout(FORK_SECONDS):
                pid = await future
        except TimeoutError:
            raise DeadlineExceeded("the warmed parent did not fork in time") from None
        self._expect(pid, ended)
        return Started(pid, start_time(pid) or 0)

    def _expect(self, pid: int, ended: Callable[[Exit], None]) -> None:
        if pid in self._early:
            ended(self._early.pop(pid))
        else:
            self._ended[pid] = ended

    async def _one_parent(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            parent = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ebbtide_operator.zygote", str(theirs.fileno()), *self._modules),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            while line := await reader.readline():
                self._hear(msgspec.json.decode(line, type=Message))
        finally:
            self._writer.close()
            if parent.returncode is None:
                parent.terminate()
            await parent.wait()

    def _hear(self, message: Message) -> None:
        if isinstance(message, Warm):
            self._log.info("the warmed parent is ready", missing=message.missing)
            self._warm.set()
        elif isinstance(message, Forked):
            future = self._forked.pop(message.ticket, None)
            if future is not None and not future.done():
                future.set_result(message.pid)
        elif isinstance(message, Ended):
            self._child_ended(message)

    def _child_ended(self, message: Ended) -> None:
        code = os.waitstatus_to_exitcode(message.status)
        how = Exit(code=code) if code >= 0 else Exit(signal=-code)
        known = self._ended.pop(message.pid, None)
        if known is None:
            self._early[message.pid] = how
        else:
            known(how)

    def _forget_parent(self) -> None:
        """Its children run on as orphans: from now on only their presence can be watched."""
        self._warm.clear()
        for future in self._forked.values():
            if not future.done():
                future.set_exception(DeadlineExceeded("the warmed parent ended"))
        self._forked.clear()
        orphans, self._ended = self._ended, {}
        for pid, ended in orphans.items():
            process = Started(pid, start_time(pid) or -1)
            task = asyncio.create_task(watch_adopted(process, ended), name=f"orphan-{pid}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
