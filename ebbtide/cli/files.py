"""Job files on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ebbtide.documents import JSON_TYPES, YAML_TYPES, parse
from ebbtide.errors import Refused

_URIS = (
    ("model", "uri"),
    ("model", "tokenizerUri"),
    ("dataset", "train", "uri"),
    ("dataset", "eval", "uri"),
    ("decode", "profile"),
)


def read(file: Path) -> Any:
    """Values of a job file, with its relative paths made absolute; raises Refused."""
    if str(file) == "-":
        return rooted(parse(sys.stdin.buffer.read(), YAML_TYPES[0]), Path.cwd())
    media_type = JSON_TYPES[0] if file.suffix == ".json" else YAML_TYPES[0]
    try:
        return rooted(parse(_content(file), media_type), file.resolve().parent)
    except Refused as error:
        raise Refused(f"{file}: {error.detail}", field=error.field) from None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None


def rooted(document: Any, folder: Path) -> Any:
    """`document` where relative paths of model, dataset and profile start at `folder`."""
    for holder, field in _holders(document):
        uri = holder[field]
        if "://" not in uri and not uri.startswith("/"):
            holder[field] = str(folder / uri)
    return document


def _holders(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for *path, field in _URIS:
        holder = document.get("spec") if isinstance(document, dict) else None
        for part in path:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and isinstance(holder.get(field), str):
            yield holder, field
