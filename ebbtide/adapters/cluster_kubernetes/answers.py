"""What an answer of the API server means to the caller of the port (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ebbtide.errors import (
    Conflict,
    EbbtideError,
    Forbidden,
    NotFound,
    Permanent,
    Refused,
    Temporary,
)

EXPIRED = "expired: list again and watch from there"
_QUOTA_SECONDS = 5.0


class Cause(msgspec.Struct, frozen=True):
    """One fault; `field` in the API's own spelling: spec.decode.replicas."""

    field: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """More about a failure."""

    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct, frozen=True):
    """The API's answer to what it did not do (metav1.Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


def read_status(code: int, body: bytes, retry_after: str = "") -> Status:
    """The Status in `body`; what is none (a proxy's page) becomes one. `retry_after`: the header."""
    try:
        found = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        found = Status(message=body[:200].decode("utf-8", "replace"))
    details = found.details or Details()
    if retry_after.isdecimal() and not details.retry_after_seconds:
        details = msgspec.structs.replace(details, retry_after_seconds=float(retry_after))
    return msgspec.structs.replace(found, code=found.code or code, details=details)


def error_of(status: Status, what: str) -> EbbtideError:
    """The error to raise. `what`: the object that the request was about."""
    meaning = _MEANINGS.get(status.code)
    if meaning is not None:
        return meaning(status, what)
    return Temporary(_said(status, what), delay=_delay(status))


def _said(status: Status, what: str) -> str:
    return f"{what}: {status.message or status.reason or status.code}"


def _delay(status: Status) -> float:
    return max(1.0, status.details.retry_after_seconds if status.details else 0.0)


def _forbidden(status: Status, what: str) -> EbbtideError:
    """No right, or no quota left: that may come back."""
    said = _said(status, what)
    if "exceeded quota" in status.message:
        return Temporary(said, delay=_QUOTA_SECONDS)
    if "because it is being terminated" in status.message:
        return NotFound(said)  # the namespace is going, and this with it
    return Forbidden(said)


def _conflict(status: Status, what: str) -> Conflict:
    if status.reason == "AlreadyExists":
        return Conflict(f"{what} exists already")
    if "UID in" in status.message and "precondition" in status.message:
        return Conflict(f"{what} is another object by now: {status.message}")
    return Conflict(f"{what} changed: {status.message}; read it again")


def _invalid(status: Status, what: str) -> Refused:
    causes = (status.details.causes if status.details else None) or ()
    if not causes:
        return Refused(f"{what}: {status.message}")
    words = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    return Refused(f"{what}: {words}"[:4000], field=pointer(causes[0].field))


def _unknown(status: Status, what: str) -> Permanent:
    del status
    return Permanent(f"{what}: the API server does not accept this program's credentials")


def _missing(status: Status, what: str) -> NotFound:
    return NotFound(f"{what} does not exist: {status.message}")


def _expired(status: Status, what: str) -> Conflict:
    del status, what
    return Conflict(EXPIRED)


_MEANINGS: Mapping[int, Callable[[Status, str], EbbtideError]] = {
    401: _unknown,
    403: _forbidden,
    404: _missing,
    409: _conflict,
    410: _expired,
    **dict.fromkeys((400, 405, 406, 413, 415, 422), _invalid),
}


def pointer(field: str) -> str:
    """A field as the API spells it (spec.items[0].name) as a JSON pointer."""
    plain = field.strip("<>").replace("[", ".").replace("]", "")
    return f"/{plain.replace('.', '/')}" if plain and plain != "nil" else ""
