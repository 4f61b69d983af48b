"""The process's own small HTTP server: /healthz, /readyz, /metrics.

Standard library only, so that every role has it without a web framework. It answers from the
event loop, so an answer at /healthz also says that the loop turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry

from ebbtide.errors import Refused
from ebbtide.metrics import render

Check = Callable[[], str]
"""Returns what is wrong now, or an empty string."""

_MAX_HEAD = 8192
_HEAD_SECONDS = 5.0


class Health:
    """What the probes say. Alive unless a liveness check complains; ready once all agree."""

    def __init__(self) -> None:
        self.ready = False
        self.draining = False
        self._alive: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def require_alive(self, name: str, check: Check) -> None:
        """Restart the process while `check` complains: for what only a restart mends."""
        self._alive[name] = check

    def require_ready(self, name: str, check: Check) -> None:
        """Send no work while `check` complains: a lost broker, a missing policy."""
        self._ready[name] = check

    def sickness(self) -> dict[str, str]:
        """Complaints of the liveness checks by name; empty means alive."""
        return _complaints(self._alive)

    def unreadiness(self) -> dict[str, str]:
        """Why no work should come; empty means ready."""
        own = {"started": "starting"} if not self.ready else {}
        drain = {"draining": "draining"} if self.draining else {}
        return {**own, **drain, **self.sickness(), **_complaints(self._ready)}


def _complaints(checks: dict[str, Check]) -> dict[str, str]:
    found = {name: check() for name, check in checks.items()}
    return {name: complaint for name, complaint in found.items() if complaint}


@asynccontextmanager
async def serve_health(
    health: Health, registry: CollectorRegistry, *, host: str, port: int
) -> AsyncIterator[int]:
    """Serve while open; gives the port. Raises Refused when the port is taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_respond(head, health, registry))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a probe that went away or speaks no HTTP has nobody to answer to
        finally:
            writer.close()

    answering: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of one's own: asyncio complains of the one that it makes when that is cancelled.
        task = asyncio.ensure_future(answer(reader, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)

    try:
        server = await asyncio.start_server(accept, host, port, limit=_MAX_HEAD)
    except OSError as error:
        detail = f"cannot listen on {host}:{port} for health checks: {error.strerror}"
        raise Refused(detail, field="EBBTIDE_HEALTH_PORT") from None
    async with server:
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)


def _respond(head: bytes, health: Health, registry: CollectorRegistry) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _http(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain")
    if path == b"/healthz":
        return _verdict(health.sickness())
    if path == b"/readyz":
        return _verdict(health.unreadiness())
    if path == b"/metrics":
        return _http(HTTPStatus.OK, *render(registry))
    return _http(HTTPStatus.NOT_FOUND, b"", "text/plain")


def _verdict(complaints: dict[str, str]) -> bytes:
    status = HTTPStatus.SERVICE_UNAVAILABLE if complaints else HTTPStatus.OK
    body = msgspec.json.encode({"ok": not complaints, "complaints": complaints})
    return _http(status, body, "application/json")


def _http(status: HTTPStatus, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
