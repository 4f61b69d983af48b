"""What wraps every request: id, security headers, figures, token, rate, size (plain ASGI).

Plain ASGI, because wrappers that buffer would break streams.
"""

from __future__ import annotations

import re
import uuid

from prometheus_client import CollectorRegistry
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ebbtide.catalogue import GATEWAY, Instruments
from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.ports import Clock
from services.gateway.app import ui
from services.gateway.app.doors import Door
from services.gateway.app.problems import respond
from services.gateway.core.limits import Buckets
from services.gateway.core.needs import need_of
from services.gateway.core.problems import Problem, from_error

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that need no token: they say nothing about any job."""

SECURITY = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Figures:
    """Metrics of the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Instruments(registry, GATEWAY)
        self.requests = make.counter("ebbtide_gateway_requests_total")
        self.seconds = make.histogram("ebbtide_gateway_request_seconds")


class Outer:
    """Request id, security headers, figures, and the last catch of what is our own fault."""

    def __init__(self, app: ASGIApp, *, figures: Figures, clock: Clock, log: Log) -> None:
        self._app = app
        self._figures = figures
        self._clock = clock
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        start = self._clock.now()
        try:
            await self._app(scope, receive, answer)
        except Exception:  # noqa: BLE001 - the one place that turns a bug into an answer
            self._log.exception("request failed", request_id=request_id, path=scope["path"])
            if not answer.status:
                detail = "The request id names the log line that says more."
                await respond(Problem("internal", detail), Request(scope))(scope, receive, answer)
        finally:
            self._count(scope, answer.status, self._clock.now() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._figures.requests.labels(route, _method(scope), str(status)).inc()
        self._figures.seconds.labels(route).observe(seconds)


class _Answer:
    """Sends on, adding headers to the start of the answer."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY:
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self._request_id
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


class Gate:
    """Lets a request in: its token names the caller, who has a rate and rights."""

    def __init__(self, app: ASGIApp, *, door: Door, buckets: Buckets, clock: Clock) -> None:
        self._app = app
        self._door = door
        self._buckets = buckets
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            problem = await self._admit(scope)
        except EbbtideError as error:  # whoever knows the callers does not answer
            problem = from_error(error)
        if problem is None or _is_sign_in(scope, problem):
            await self._app(scope, receive, send)
        elif problem.kind == "unauthorized" and _is_page(scope):
            wrong = ui.COOKIE in Request(scope).cookies
            await ui.sign_in(wrong=wrong)(scope, receive, send)
        else:
            await respond(problem, Request(scope))(scope, receive, send)

    async def _admit(self, scope: Scope) -> Problem | None:
        caller = await self._door.caller(_token(scope))
        # Guesses share the bucket of their address, so they cannot be tried at will.
        bucket = caller.tenant if caller else f"@{_peer(scope)}"
        wait = self._buckets.take(bucket, self._clock.now())
        if wait:
            after = {"Retry-After": str(int(wait) + 1)}
            return Problem("rate-limited", "Send fewer requests.", headers=after)
        if caller is None:
            hint = "Send `Authorization: Bearer TOKEN`; `ebbtide up` names the file with the token."
            return Problem("unauthorized", hint)
        need = need_of(scope["method"], scope["path"])
        if not await self._door.may(caller, need):
            what = f"job {need.name}" if need.name else "jobs"
            return Problem("forbidden", f"{caller.name} may not {need.verb} {what} here.")
        scope["state"]["tenant"] = caller.tenant
        return None


class BodyLimit:
    """Refuses a body as soon as it is known, or seen, to be larger than `limit` bytes."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > self._limit:
            await respond(self._problem(), Request(scope))(scope, receive, send)
            return
        await self._app(scope, self._counting(receive), send)

    def _counting(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise self._problem()
            return message

        return counted

    def _problem(self) -> Problem:
        return Problem("too-large", f"The body may have at most {self._limit} bytes.")


def _token(scope: Scope) -> str | None:
    scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    # A browser shows its cookie, to the pages alone: they only read.
    return Request(scope).cookies.get(ui.COOKIE) or None if _is_page(scope) else None


def _is_page(scope: Scope) -> bool:
    return bool(scope["path"] == ui.HOME or scope["path"].startswith(f"{ui.HOME}/"))


def _is_sign_in(scope: Scope, problem: Problem) -> bool:
    """Signing in needs no token yet; guesses share the rate of their address all the same."""
    return problem.kind == "unauthorized" and scope["path"] == ui.SIGN_IN


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def _method(scope: Scope) -> str:
    known = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
    return scope["method"] if scope["method"] in known else "other"
