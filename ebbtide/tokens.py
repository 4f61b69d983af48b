"""Bearer tokens: random, kept as SHA-256 by the gateway, compared in constant time.

A tokens file has one `tenant:sha256` a line; `#` starts a comment. The tokens are 256 random
bits, so a plain hash is enough: there is no password to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

import msgspec

from ebbtide.errors import Refused

PREFIX = "ebt_"
_LINE = re.compile(r"^([a-z0-9][-a-z0-9]{0,39}):([0-9a-f]{64})$")


class Known(msgspec.Struct, frozen=True):
    """One accepted token: whose it is, and its hash in hex."""

    tenant: str
    sha256: str


def new_token() -> str:
    """A fresh token with 256 random bits."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def line(tenant: str, token: str) -> str:
    """The line of the tokens file that admits `token` as `tenant`."""
    return f"{tenant}:{hashlib.sha256(token.encode()).hexdigest()}"


def parse(text: str) -> tuple[Known, ...]:
    """Read a tokens file; raises Refused that names the line which is wrong, never its content."""
    found: list[Known] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        content = raw.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.match(content)
        if match is None:
            raise Refused(f"line {number} of the tokens file is not `tenant:sha256`")
        found.append(Known(tenant=match[1], sha256=match[2]))
    return tuple(found)


def tenant_of(token: str, known: Sequence[Known]) -> str | None:
    """Whose token it is; looks at every entry, so the time does not tell which one matched."""
    given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
    found = None
    for entry in known:
        if hmac.compare_digest(given, entry.sha256):
            found = entry.tenant
    return found
