"""Reads a job file: JSON or YAML bytes to plain values, strictly, safely, without surprises.

YAML follows the 1.2 core schema (`1e-6` is a number, `on` is a text, dates stay text). Refused
with line and column: duplicate keys, anchors and aliases (they can make a short text huge), tags,
several documents, keys that are not text, nesting deeper than 64. Pure.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import yaml

from ebbtide.errors import Refused

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
MAX_DEPTH = 64

_INT = re.compile(r"[-+]?[0-9]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


def parse(data: bytes, media_type: str) -> Any:
    """Values of a JSON or YAML document by media type; raises Refused with the place."""
    text = _text(data)
    if media_type in JSON_TYPES:
        return parse_json(text)
    assert media_type in YAML_TYPES, media_type
    return parse_yaml(text)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"the document is not UTF-8: byte {error.start} is wrong") from None


def parse_json(text: str) -> Any:
    """Values of a JSON text; duplicate keys, NaN and infinities are refused."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise Refused(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Refused("the document is nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise Refused(str(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Refused(f"the key {key[:80]!r} occurs twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise Refused(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refused(f"the number {text[:40]} is too large")
    return value


def parse_yaml(text: str) -> Any:
    """Value of the one YAML document in `text`."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _refused_at(error.problem_mark, error.problem or "not YAML") from None
    except yaml.YAMLError as error:
        raise Refused(f"not YAML: {error}") from None
    return builder.document


class _Builder:
    """Builds values from parser events with a stack, so depth never reaches Python's limit."""

    def __init__(self) -> None:
        self.document: Any = None
        self._documents = 0
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []

    def take(self, event: Any) -> None:
        if getattr(event, "anchor", None) is not None:
            raise _refused_at(event.start_mark, "anchors and aliases are not allowed")
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _refused_at(event.start_mark, "more than one document")
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent():
                self._begin(event, {})
            case yaml.SequenceStartEvent():
                self._begin(event, [])
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
                self._keys.pop()

    def _begin(self, event: Any, container: dict[str, Any] | list[Any]) -> None:
        if event.tag is not None:
            raise _refused_at(event.start_mark, f"the tag {event.tag} is not allowed")
        if len(self._open) >= MAX_DEPTH:
            raise _refused_at(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        self._put(event, container)
        self._open.append(container)
        self._keys.append(None)

    def _scalar(self, event: Any) -> None:
        if event.tag is not None:
            raise _refused_at(event.start_mark, f"the tag {event.tag} is not allowed")
        top = self._open[-1] if self._open else None
        if isinstance(top, dict) and self._keys[-1] is None:
            if event.value in top:
                raise _refused_at(event.start_mark, f"the key {event.value[:80]!r} occurs twice")
            self._keys[-1] = event.value
            return
        self._put(event, _resolve(event) if event.implicit[0] else event.value)

    def _put(self, event: Any, value: Any) -> None:
        if not self._open:
            self.document = value
            return
        top = self._open[-1]
        if isinstance(top, list):
            top.append(value)
            return
        key = self._keys[-1]
        if key is None:
            raise _refused_at(event.start_mark, "a key must be text")
        top[key] = value
        self._keys[-1] = None


def _resolve(event: Any) -> Any:
    text: str = event.value
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _float(event, text)
    if text.lower() in (".nan", ".inf", "-.inf", "+.inf"):
        raise _refused_at(event.start_mark, f"{text} is not a finite number")
    return text


def _float(event: Any, text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _refused_at(event.start_mark, f"the number {text[:40]} is too large")
    return value


def _refused_at(mark: Any, why: str) -> Refused:
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return Refused(f"{place}{why}")
