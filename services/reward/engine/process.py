"""Nurseries and workers as the pool sees them: had warm, killed with all that descends from them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress

from ebbtide.errors import Refused, Temporary
from ebbtide.settings import PREFIX
from services.reward.engine.frames import (
    LARGEST,
    LENGTH,
    STATUS,
    FromWorker,
    Open,
    Ready,
    Setup,
    ToWorker,
    Unfit,
    pack,
    unpack,
)
from services.reward.engine.offspring import kill_below

_GUARD_SECONDS = 5.0
_NURSERY = "services.reward.engine.nursery"
WORKER = "services.reward.engine.worker"
ENVIRONMENT_WORKER = "services.reward.engine.environment_worker"
MODEL_WORKER = "services.reward.engine.model_worker"


class Worker:
    """A running worker that has all that its components need.

    `pid` is that of its guard, whose child the worker is.
    """

    def __init__(
        self,
        *,
        pid: int,
        channel: tuple[StreamReader, StreamWriter],
        told: tuple[StreamReader, StreamWriter],
    ) -> None:
        self.pid = pid
        self.versions: Mapping[str, str] = {}
        self._in, self._out = channel[1], channel[0]
        self._told, self._ear = told
        self._guard = os.pidfd_open(pid)
        """Names the guard for good: its number may be another's once it has ended."""

    async def send(self, message: ToWorker) -> None:
        """Write a frame; a worker that died shows in `receive`."""
        with suppress(ConnectionError):
            self._in.write(pack(message))
            await self._in.drain()

    async def receive(self) -> FromWorker | None:
        """The next frame; None once the worker is dead, or has written what is no frame."""
        return await _frame(self._out)

    def kill(self) -> None:
        """Kill it and all that descends from it; its guard ends by itself.

        Killed from here too, and the guard told to go on, for a function may have stopped it.
        """
        if self._signal(0):
            kill_below(self.pid)
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    async def end(self) -> int:
        """Kill; returns how it ended, a negative number for a signal."""
        self.kill()
        try:
            async with asyncio.timeout(_GUARD_SECONDS):
                return await self._status()
        except TimeoutError:  # it waits for what has become another user's
            self._signal(signal.SIGKILL)
            return await self._status()
        finally:
            os.close(self._guard)
            self._in.close()
            self._ear.close()

    async def _status(self) -> int:
        try:
            return int(STATUS.unpack(await self._told.readexactly(STATUS.size))[0])
        except (asyncio.IncompleteReadError, ConnectionError):  # somebody killed the guard
            return -signal.SIGKILL

    def _signal(self, number: int) -> bool:
        """Whether the guard is there to be signalled."""
        try:
            signal.pidfd_send_signal(self._guard, number)
        except ProcessLookupError:
            return False
        return True


class Nursery:
    """Use `open_nursery`; gives workers until it is ended, and they end with it."""

    def __init__(self, process: Process, *, orders: socket.socket) -> None:
        self._process = process
        self._orders = orders

    @property
    def alive(self) -> bool:
        """Whether it can give workers."""
        return self._process.returncode is None

    async def worker(self, *, timeout: float) -> Worker:
        """A warm worker, within `timeout` seconds.

        Raises Refused when the components cannot be had, Temporary when the process cannot.
        """
        try:
            async with asyncio.timeout(timeout):
                worker = await self._order()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Temporary(f"cannot fork a worker: {error!r}") from None
        try:
            async with asyncio.timeout(timeout):
                worker.versions = _expect_ready(await worker.receive())
        except BaseException as error:
            status = await worker.end()
            if isinstance(error, TimeoutError | _Silent):
                raise Temporary(f"a worker did not start (status {status})") from None
            raise
        return worker

    async def _order(self) -> Worker:
        channel, its_channel = socket.socketpair()
        told, its_told = socket.socketpair()
        with its_channel, its_told:
            try:
                socket.send_fds(self._orders, [b"+"], [its_channel.fileno(), its_told.fileno()])
            except OSError:  # it has ended, and nobody has noticed yet
                channel.close()
                told.close()
                raise
        ears = await asyncio.open_connection(sock=told)
        mouth = await asyncio.open_connection(sock=channel)
        try:
            pid = STATUS.unpack(await ears[0].readexactly(STATUS.size))[0]
            return Worker(pid=pid, channel=mouth, told=ears)
        except BaseException:
            ears[1].close()
            mouth[1].close()
            raise

    async def end(self) -> int:
        """Kill it with all its workers; returns its exit status."""
        self._orders.close()
        if self.alive:
            kill_below(self._process.pid)
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(_GUARD_SECONDS):
                return await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Not by the process object, which would reap behind asyncio's back."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


async def open_nursery(setup: Setup, *, timeout: float, module: str = WORKER) -> Nursery:
    """A nursery that has loaded what judges, within `timeout` seconds. `module`: what has `load`.

    What has threads once it is loaded is loaded by each worker instead. Raises as `Nursery.worker`.
    """
    warm = module == WORKER
    nursery, opened = await _started(setup, timeout=timeout, module=module, warm=warm)
    if warm and opened.threads:
        await nursery.end()
        nursery, _ = await _started(setup, timeout=timeout, module=module, warm=False)
    return nursery


async def _started(
    setup: Setup, *, timeout: float, module: str, warm: bool
) -> tuple[Nursery, Open]:
    orders, its_orders = socket.socketpair()
    with its_orders:
        process = await _process(module, its_orders, "warm" if warm else "bare")
    orders.setblocking(False)
    nursery = Nursery(process, orders=orders)
    assert process.stdin
    assert process.stdout
    try:
        async with asyncio.timeout(timeout):
            with suppress(ConnectionError):
                process.stdin.write(pack(setup))
                await process.stdin.drain()
            return nursery, _expect_open(await _frame(process.stdout))
    except BaseException as error:
        status = await nursery.end()
        if isinstance(error, TimeoutError | _Silent):
            raise Temporary(f"what judges did not load (status {status})") from None
        raise


async def _process(module: str, orders: socket.socket, how: str) -> Process:
    number = orders.fileno()
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _NURSERY, module, str(number), how),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(number,),
            start_new_session=True,
            env=_environment(),
        )
    except OSError as error:
        raise Temporary(f"cannot start a worker: {error.strerror}") from None


async def _frame(source: StreamReader) -> FromWorker | None:
    try:
        size = LENGTH.unpack(await source.readexactly(LENGTH.size))[0]
        return unpack(await source.readexactly(size)) if size <= LARGEST else None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class _Silent(Exception):
    pass


def _expect_open(message: FromWorker | None) -> Open:
    match message:
        case Open():
            return message
        case Unfit(why):
            raise Refused(why, field="/spec/reward/components")
        case _:
            raise _Silent


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
