"""Runs one process: one task group, signals, health server, one clear line at the end.

A `__main__` is: load settings, `logs.setup`, import the shell, `sys.exit(run(body, ...))`.
`body(process)` does the role's work and returns when it has drained. SIGTERM and SIGINT set
`process.drain`; a second one, or `grace_seconds` after the first, ends the body by force. A
background task that dies ends the process, so nothing runs on half alive. This module knows no
role, no broker and no model.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from ebbtide import logs
from ebbtide.errors import EbbtideError, Fenced, Permanent, Refused, Temporary
from ebbtide.exits import (
    EXIT_BUG,
    EXIT_FENCED,
    EXIT_OK,
    EXIT_OVERRAN,
    EXIT_PERMANENT,
    EXIT_REFUSED,
    EXIT_TEMPORARY,
)
from ebbtide.health import Health, serve_health
from ebbtide.kept_logs import Backlog
from ebbtide.logs import Log, Place
from ebbtide.settings import ProcessSettings, RoleSettings
from ebbtide.tracing import NO_SPANS, Spans

__all__ = [
    "EXIT_BUG",
    "EXIT_FENCED",
    "EXIT_OK",
    "EXIT_OVERRAN",
    "EXIT_PERMANENT",
    "EXIT_REFUSED",
    "EXIT_TEMPORARY",
    "Process",
    "run",
]

EXPECTED: tuple[tuple[type[EbbtideError], int, str], ...] = (
    (Fenced, EXIT_FENCED, "superseded"),
    (Refused, EXIT_REFUSED, "refused"),
    (Permanent, EXIT_PERMANENT, "cannot go on"),
    (Temporary, EXIT_TEMPORARY, "gave up for now"),
)


class Process:
    """What a shell gets from its process."""

    def __init__(
        self,
        *,
        group: asyncio.TaskGroup,
        registry: CollectorRegistry,
        log: Log,
        spans: Spans = NO_SPANS,
        place: Place | None = None,
    ) -> None:
        self.drain = asyncio.Event()
        self.health = Health()
        self.registry = registry
        self.log = log
        self.spans = spans
        self.place = place or Place()
        self._group = group
        self._background: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` beside the body until the body ends; if it raises, the process ends."""
        task = self._group.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def begin_drain(self) -> None:
        """Stop intake: as if SIGTERM had come."""
        self.health.draining = True
        self.drain.set()

    def stop_background(self) -> None:
        """Cancel what `spawn` started; the body is over."""
        for task in self._background:
            task.cancel()


Body = Callable[[Process], Awaitable[None]]


class _Overran(Exception):
    pass


def run(
    body: Body,
    *,
    settings: ProcessSettings,
    registry: CollectorRegistry,
    log: Log,
    kept: Backlog | None = None,
) -> int:
    """Run `body` to its end; returns the exit code. One log line says why it ended.

    `kept`: what a role's process says, which is written to the blob store meanwhile.
    """
    with _keeping(kept, settings, log):
        return _run(body, settings=settings, registry=registry, log=log)


def _keeping(
    kept: Backlog | None, settings: ProcessSettings, log: Log
) -> AbstractContextManager[None]:
    if kept is None or not isinstance(settings, RoleSettings) or not settings.log_mib:
        return nullcontext()
    from ebbtide.adapters.log_keeper import keeping  # noqa: PLC0415 - roles alone have it

    return keeping(kept, settings, log)


def _run(body: Body, *, settings: ProcessSettings, registry: CollectorRegistry, log: Log) -> int:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_supervise(body, settings=settings, registry=registry, log=log))
    except BaseException as error:  # noqa: BLE001 - the one place that turns errors into codes
        return _explain(error, log)
    log.info("process ended")
    return EXIT_OK


async def _supervise(
    body: Body, *, settings: ProcessSettings, registry: CollectorRegistry, log: Log
) -> None:
    spans = _spans(settings.otlp_url)
    async with asyncio.TaskGroup() as group:
        place = logs.begin()
        process = Process(group=group, registry=registry, log=log, spans=spans, place=place)
        server = serve_health(
            process.health, registry, host=settings.health_host, port=settings.health_port
        )
        async with server as port:
            log.info("process started", health_port=port, settings=settings.describe())
            await _run_body(body, process, settings.grace_seconds)
        process.stop_background()
    await asyncio.to_thread(spans.close)


def _spans(url: str) -> Spans:
    if not url:
        return NO_SPANS
    from ebbtide.adapters.otlp import open_spans  # noqa: PLC0415 - not every process has it

    return open_spans(url)


async def _run_body(body: Body, process: Process, grace: float) -> None:
    work = asyncio.ensure_future(body(process))
    forced = asyncio.Event()
    _listen(process, forced)
    watch = asyncio.create_task(_watch(process.drain, forced, grace), name="drain-watch")
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise _Overran
        work.result()
    finally:
        watch.cancel()
        work.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _watch(drain: asyncio.Event, forced: asyncio.Event, grace: float) -> None:
    await drain.wait()
    try:
        async with asyncio.timeout(grace):
            await forced.wait()
    except TimeoutError:
        return


def _listen(process: Process, forced: asyncio.Event) -> None:
    def heard(number: signal.Signals) -> None:
        process.log.info("signal received", signal=number.name)
        if process.drain.is_set():
            forced.set()
        process.begin_drain()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)


def _explain(error: BaseException, log: Log) -> int:
    cause = _first(error)
    if isinstance(cause, _Overran):
        log.error("drain overran its grace period")
        return EXIT_OVERRAN
    for kind, code, words in EXPECTED:
        if isinstance(cause, kind):
            log.error("process ended", reason=words, why=str(cause), error=type(cause).__name__)
            return code
    log.error("process died of a bug", error=repr(cause), trace=traceback.format_exception(cause))
    return EXIT_BUG


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
