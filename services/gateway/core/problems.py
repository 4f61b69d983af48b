"""Errors as RFC 9457 problem documents; `KINDS` is the stable list (docs/api/README.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ebbtide.errors import (
    Conflict,
    EbbtideError,
    Forbidden,
    NotFound,
    Refused,
    Temporary,
    Throttled,
)
from ebbtide.spec.check import Fault, Invalid

BASE = "https://ebbtide.dev/problems/"
MEDIA_TYPE = "application/problem+json"


class Kind(msgspec.Struct, frozen=True):
    """One type of problem: its status and its title."""

    status: int
    title: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "malformed": Kind(400, "The request cannot be read"),
        "idempotency-key-missing": Kind(400, "Idempotency-Key is missing"),
        "unauthorized": Kind(401, "No valid bearer token"),
        "forbidden": Kind(403, "You may not do this"),
        "not-found": Kind(404, "There is no such thing"),
        "method-not-allowed": Kind(405, "This method is not allowed here"),
        "conflict": Kind(409, "The state of the job forbids it"),
        "in-flight": Kind(409, "The first request with this key is still running"),
        "precondition-failed": Kind(412, "The job changed since it was read"),
        "too-large": Kind(413, "The request is too large"),
        "unsupported-media-type": Kind(415, "This content type is not understood"),
        "invalid": Kind(422, "Fields are not valid"),
        "idempotency-mismatch": Kind(422, "The key was used with another payload"),
        "rate-limited": Kind(429, "Too many requests"),
        "internal": Kind(500, "The gateway failed"),
        "unavailable": Kind(503, "A part behind the gateway does not answer"),
    }
)


class Problem(Exception):
    """Ends a request with a problem document of kind `kind` (a key of KINDS)."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Fault] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers)

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return KINDS[self.kind].status


def document(problem: Problem, *, instance: str, request_id: str) -> dict[str, Any]:
    """The problem as JSON values."""
    kind = KINDS[problem.kind]
    body: dict[str, Any] = {
        "type": f"{BASE}{problem.kind}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "instance": instance,
        "requestId": request_id,
    }
    if problem.errors:
        body["errors"] = [{"pointer": f.pointer, "detail": f.detail} for f in problem.errors]
    return body


def from_error(error: EbbtideError) -> Problem:
    """What an error of the ports means to the caller of the API."""
    if isinstance(error, Refused):
        return _refusal(error)
    if isinstance(error, Temporary):
        delay = {"Retry-After": str(max(1, round(error.delay)))}
        if isinstance(error, Throttled):
            return Problem("rate-limited", "The cluster asks for fewer requests.", headers=delay)
        return Problem("unavailable", "Try again a little later.", headers=delay)
    return Problem("internal", "The request id names the log line that says more.")


def _refusal(error: Refused) -> Problem:
    match error:
        case Forbidden():
            return Problem("forbidden", error.detail)
        case NotFound():
            return Problem("not-found", error.detail)
        case Conflict():
            return Problem("conflict", error.detail)
        case Invalid():
            return Problem("invalid", str(error), errors=error.faults)
    return Problem("invalid", error.detail, errors=[Fault(error.field, error.detail)])


def from_status(status: int, detail: str) -> Problem:
    """The framework's own refusals: no such route, wrong method, unreadable parameter."""
    kinds = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 422: "invalid"}
    return Problem(kinds.get(status, "malformed"), detail)
