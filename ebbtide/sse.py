"""Reads server-sent events."""

from __future__ import annotations

from collections.abc import Iterator


def parse_stream(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """(event, data, id) of each server-sent event; comments are heartbeats and are dropped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        elif fields:
            yield fields.get("event", "message"), fields.get("data", ""), fields.get("id", "")
            fields = {}
