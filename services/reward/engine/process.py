"""One worker process as the pool sees it: started warm, killed with all that descends from it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from ebbtide.errors import Refused, Temporary
from ebbtide.settings import PREFIX
from services.reward.engine.frames import LENGTH, FromWorker, Ready, Setup, ToWorker, Unfit, pack
from services.reward.engine.offspring import kill_below

_GUARD_SECONDS = 5.0
WORKER = "services.reward.engine.worker"
MODEL_WORKER = "services.reward.engine.model_worker"


class Worker:
    """A running worker that has imported all that its components need."""

    def __init__(self, process: Process, *, versions: Mapping[str, str]) -> None:
        assert process.stdin
        assert process.stdout
        self.versions = versions
        self._process = process
        self._in, self._out = process.stdin, process.stdout

    @property
    def pid(self) -> int:
        """Of the worker's guard, which leads a session of its own; the worker is its child."""
        return self._process.pid

    async def send(self, message: ToWorker) -> None:
        """Write a frame; a worker that died shows in `receive`."""
        with suppress(ConnectionError):
            self._in.write(pack(message))
            await self._in.drain()

    async def receive(self) -> FromWorker | None:
        """The next frame, or None once the worker is dead."""
        try:
            head = await self._out.readexactly(LENGTH.size)
            body = await self._out.readexactly(LENGTH.unpack(head)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return msgspec.msgpack.decode(body, type=FromWorker)

    def kill(self) -> None:
        """Kill it and all that descends from it; its guard ends by itself.

        Killed from here too, and the guard told to go on, for a function may have stopped it.
        """
        if self._process.returncode is None:
            kill_below(self._process.pid)
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    async def end(self) -> int:
        """Kill and reap; returns how it ended, a negative number for a signal."""
        self.kill()
        try:
            async with asyncio.timeout(_GUARD_SECONDS):
                return await self._process.wait()
        except TimeoutError:  # it waits for what has become another user's
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Not by the process object, which would reap behind asyncio's back."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


async def start(setup: Setup, *, timeout: float, module: str = WORKER) -> Worker:
    """A warm worker, within `timeout` seconds. `module`: what it runs.

    Raises Refused when the components cannot be had, Temporary when the process cannot.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        raise Temporary(f"cannot start a worker: {error.strerror}") from None
    bare = Worker(process, versions={})
    try:
        async with asyncio.timeout(timeout):
            await bare.send(setup)
            return Worker(process, versions=_expect_ready(await bare.receive()))
    except BaseException as error:
        status = await bare.end()
        if isinstance(error, TimeoutError | _Silent):
            raise Temporary(f"a worker did not start (status {status})") from None
        raise


class _Silent(Exception):
    pass


def _expect_ready(message: FromWorker | None) -> dict[str, str]:
    match message:
        case Ready(versions):
            return versions
        case Unfit(why):
            raise Refused(why, field="/spec/reward/components")
        case _:
            raise _Silent


def _environment() -> dict[str, str]:
    """Ours without the service's settings, which hold secrets; one thread per library."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
