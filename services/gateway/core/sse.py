"""Server-sent events as bytes (WHATWG HTML, 9.2)."""

from __future__ import annotations

import msgspec

HEARTBEAT = b": ping\n\n"


class Frame(msgspec.Struct, frozen=True):
    """One event on its way to a client."""

    event: str
    data: bytes
    id: str = ""


def encode(frame: Frame) -> bytes:
    """The frame as it goes over the wire; `data` is one line of JSON."""
    assert b"\n" not in frame.data, "data is one line of JSON"
    head = f"id: {frame.id}\n" if frame.id else ""
    return f"{head}event: {frame.event}\ndata: ".encode() + frame.data + b"\n\n"
