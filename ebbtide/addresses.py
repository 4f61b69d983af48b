"""Addresses on the web as people write them (pure)."""

from __future__ import annotations

from urllib.parse import urlsplit


def fault(url: str) -> str:
    """Why nobody can be called at `url`, with the fix; empty if somebody could be."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"it cannot be read as an address: {error}"
    if parts.scheme not in {"http", "https"} or not host:
        return "it must be an address that begins with http:// or https://"
    if port == 0:
        return "nobody is at port 0: name another, or none"
    try:
        host.encode("idna")
    except UnicodeError:
        return f"{host!r} is no host: each part of a name has 1 to 63 characters"
    return ""
