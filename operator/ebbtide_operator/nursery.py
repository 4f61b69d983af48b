"""The warmed parent, seen from the process runner: fork, learn of ends, start it anew."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence

import msgspec

from ebbtide.errors import DeadlineExceeded, Permanent
from ebbtide.logs import Log
from ebbtide_operator.processes import (
    Exit,
    Held,
    Program,
    Started,
    exit_of,
    start_time,
    watch_adopted,
)
from ebbtide_operator.zygote import Command, Ended, Fork, Forked, Go, Message, Warm

FORK_SECONDS = 30.0
RESTART_SECONDS = 1.0
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
ONE_THREAD = dict.fromkeys(_POOLS, "1")
"""Libraries that start threads when they are imported would make the fork unsafe."""


class Nursery:
    """Starts programs as forks of a parent that has `modules` imported."""

    def __init__(self, *, modules: Sequence[str], log: Log) -> None:
        self._modules = tuple(modules)
        self._log = log
        self._tickets = 0
        self._forked: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, Callable[[Exit], None]] = {}
        self._early: dict[int, Exit] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.warm = False
        """Whether `start` can be called now."""

    async def run(self) -> None:
        """Keep a warmed parent; runs until it is cancelled."""
        while True:
            await self._one_parent()
            self._log.warning("the warmed parent ended; starting another")
            self._forget_parent()
            await asyncio.sleep(RESTART_SECONDS)

    async def start(self, program: Program, *, ended: Callable[[Exit], None]) -> Held:
        """Fork `python -m MODULE ARG...`; only while `warm`."""
        if list(program.command[:2]) != ["python", "-m"] or len(program.command) < 3:
            shown = " ".join(program.command)
            raise Permanent(f"a warm pod's command must be python -m MODULE, not: {shown}")
        self._tickets += 1
        answer = self._forked[self._tickets] = asyncio.get_running_loop().create_future()
        self._say(_request(self._tickets, program))
        try:
            async with asyncio.timeout(FORK_SECONDS):
                pid = await answer
        except TimeoutError:
            raise DeadlineExceeded("the warmed parent did not fork in time") from None
        self._expect(pid, ended)
        return Held(Started(pid, start_time(pid) or 0), lambda: self._say(Go(pid)))

    def _say(self, command: Command) -> None:
        if self._writer is not None:  # a parent that died took its waiting children along
            self._writer.write(msgspec.json.encode(command) + b"\n")

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
                env={**os.environ, **ONE_THREAD},
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
            self._writer = None
            if parent.returncode is None:
                parent.terminate()
            await parent.wait()

    def _hear(self, message: Message) -> None:
        if isinstance(message, Warm):
            self._welcome(message)
        elif isinstance(message, Forked):
            future = self._forked.pop(message.ticket, None)
            if future is not None and not future.done():
                future.set_result(message.pid)
        elif isinstance(message, Ended):
            self._child_ended(message)

    def _welcome(self, hello: Warm) -> None:
        self._log.info("the warmed parent is ready", missing=hello.missing)
        if hello.threads > 1:
            self._log.warning("the warmed parent has threads; forks may hang", n=hello.threads)
        self.warm = True

    def _child_ended(self, message: Ended) -> None:
        how = exit_of(os.waitstatus_to_exitcode(message.status))
        known = self._ended.pop(message.pid, None)
        if known is None:
            self._early[message.pid] = how
        else:
            known(how)

    def _forget_parent(self) -> None:
        """Its children run on as orphans: from now on only their presence can be watched."""
        self.warm = False
        for future in self._forked.values():
            if not future.done():
                future.set_exception(DeadlineExceeded("the warmed parent ended"))
        self._forked.clear()
        self._early.clear()
        orphans, self._ended = self._ended, {}
        for pid, ended in orphans.items():
            process = Started(pid, start_time(pid) or -1)
            task = asyncio.create_task(watch_adopted(process, ended), name=f"orphan-{pid}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _request(ticket: int, program: Program) -> Fork:
    return Fork(
        ticket=ticket,
        module=program.command[2],
        arguments=tuple(program.command[3:]),
        env=program.env,
        log=str(program.log),
        folder=str(program.folder),
        title=program.title,
    )
