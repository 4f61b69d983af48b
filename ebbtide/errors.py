"""The exception tree: who was wrong, and what the one who catches it can do.

EbbtideError
  Refused(ValueError)      the caller's mistake: a reply, never a crash; names the field and the fix
    Fenced                 a command or write of a superseded epoch or attempt
    NotFound               the thing named does not exist
    Conflict               it exists already, or changed since it was read
    Forbidden              the caller is known and may not do this
  Temporary                infrastructure; may be tried again after `delay` seconds
    DeadlineExceeded       a wait ended without an answer
    Throttled              the other side did nothing and asks for fewer requests
  Permanent                infrastructure or configuration; trying again changes nothing
    Corrupt                bytes whose digest, frame or schema does not hold
"""

from __future__ import annotations


class EbbtideError(Exception):
    """Root of every error that ebbtide raises on purpose."""


class Refused(EbbtideError, ValueError):
    """The caller's mistake. `field` is a JSON pointer into what was sent, or empty."""

    def __init__(self, detail: str, *, field: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


class Fenced(Refused):
    """A newer epoch or attempt exists; whoever gets this must stop writing and exit."""


class NotFound(Refused):
    """The named thing does not exist."""


class Conflict(Refused):
    """The named thing exists already, or changed since it was read."""


class Forbidden(Refused):
    """Whoever asks is known, and has no right to this."""


class Temporary(EbbtideError):
    """Infrastructure failed in a way that may pass; `delay` is in seconds."""

    def __init__(self, detail: str, *, delay: float = 1.0) -> None:
        super().__init__(detail)
        self.delay = delay


class DeadlineExceeded(Temporary):
    """A wait ended at its deadline without an answer."""


class Throttled(Temporary):
    """The other side did nothing and asks for fewer requests."""


class Permanent(EbbtideError):
    """Trying again changes nothing; a person must act."""


class Corrupt(Permanent):
    """Bytes whose digest, frame or schema does not hold."""
