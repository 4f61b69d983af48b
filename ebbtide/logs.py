"""Structured logs, set up once per process: one JSON object a line, on stderr.

Every `__main__` calls `setup` with the ids of the process (role, job, attempt, pod), so no call
site repeats them; the step comes from the process's `Place`. Lines of other libraries come out in the same form. An event is a verb phrase;
what varies goes into fields: `log.info("policy loaded", policy=7)`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from ebbtide.kept_logs import Backlog

Log = FilteringBoundLogger


class Place:
    """Where a process's work stands, which each of its lines tells. `step`: None before the first."""

    step: int | None = None


_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)


def begin() -> Place:
    """The place of all work that is begun in this context from now on."""
    place = Place()
    _PLACE.set(place)
    return place


_QUIET = ("httpx", "httpcore", "nats", "asyncio", "uvicorn.access")


def setup(
    level: str, *, stream: TextIO | None = None, kept: Backlog | None = None, **ids: Any
) -> Log:
    """Configure structlog and the standard library's logging; return the process's logger.

    `kept`: takes each line too, without secrets, for the blob store.
    """
    numeric = logging.getLevelNamesMapping()[level.upper()]
    target = cast("TextIO", _Lossy(stream or sys.stderr, kept))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _adding(ids),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.ExceptionRenderer(),
    ]
    structlog.configure(
        processors=[*shared, _render],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=True,
    )
    _route_standard_logging(numeric, shared, target)
    logger: Log = structlog.get_logger()
    return logger


class _Lossy:
    """Loses lines that cannot be written: a full disk must not end what only wants to say so."""

    def __init__(self, stream: TextIO, kept: Backlog | None) -> None:
        self._stream, self._kept = stream, kept

    def write(self, text: str) -> None:
        if self._kept is not None:
            text = self._kept.starred(text)
            self._kept.add(text)
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _adding(ids: dict[str, Any]) -> Processor:
    def add(_: Any, __: str, event: EventDict) -> MutableMapping[str, Any]:
        place = _PLACE.get()
        step = {} if place is None or place.step is None else {"step": place.step}
        return {**ids, **step, **event}

    return add


def _render(_: Any, __: str, event: EventDict) -> str:
    head = {"at": event.pop("at"), "level": event.pop("level"), "event": event.pop("event")}
    return msgspec.json.encode({**head, **event}, enc_hook=repr).decode()


def _route_standard_logging(level: int, shared: list[Processor], stream: TextIO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
