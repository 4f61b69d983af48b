"""Checks a job document against the schema: all faults at once, each with a JSON pointer.

The gateway and the offline check of the CLI use it, so both say the same words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from ebbtide.errors import Refused
from ebbtide.spec.base import PATTERN_WORDS
from ebbtide.spec.job import RLHFJob

MAX_FAULTS = 100


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong. `pointer` is an RFC 6901 JSON pointer into the document."""

    pointer: str
    detail: str


class Invalid(Refused):
    """The document is not a job; `faults` says all that is wrong with it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(_summary(faults), field=faults[0].pointer)
        self.faults = tuple(faults)


def check(document: Any) -> RLHFJob:
    """The job that `document` (plain JSON values) describes; raises Invalid."""
    if not isinstance(document, dict):
        empty = "the document is empty: " if document is None else ""
        words = f"{empty}a job is an object with apiVersion, kind, metadata and spec"
        raise Invalid([Fault("", words)])
    try:
        # As JSON, because strict mode takes a list for a tuple only there.
        # By alias alone: the names that our own code builds specs with are not the document's.
        return RLHFJob.model_validate_json(json.dumps(document), by_alias=True, by_name=False)
    except ValidationError as error:
        raise Invalid(faults(error, document)) from None


def dump(job: RLHFJob) -> dict[str, Any]:
    """The job as JSON values with every default filled in, as the API server would store it.

    A field that is unset is left out, unless null differs from its default.
    """
    found: dict[str, Any] = _plain(job)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        shown = ((field, getattr(value, name)) for name, field in fields)
        return {f.alias: _plain(v) for f, v in shown if v is not None or f.default is not None}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def faults(error: ValidationError, document: Any) -> list[Fault]:
    """Pydantic's errors in our words, in document order, without values (they may be secret)."""
    listed = error.errors(include_url=False, include_input=False, include_context=False)
    found = [
        (
            item["type"],
            Fault(pointer(item["loc"], document, missing=item["type"] == "missing"), _words(item)),
        )
        for item in listed[:MAX_FAULTS]
    ]
    return [fault for kind, fault in found if not _follows(kind, fault, found)]


def _follows(kind: str, fault: Fault, found: Sequence[tuple[str, Fault]]) -> bool:
    """A list is called too short only because its items are wrong: the items say it better."""
    inside = f"{fault.pointer}/"
    return kind == "too_short" and any(other.pointer.startswith(inside) for _, other in found)


def pointer(loc: Sequence[int | str], document: Any, *, missing: bool = False) -> str:
    """JSON pointer of a pydantic location.

    Locations also name the chosen branch of a union; what does not exist in the document is
    such a name, unless it is the last part of a missing field.
    """
    parts: list[str] = []
    here = document
    for position, part in enumerate(loc):
        if _has(here, part):
            here = here[part]
            parts.append(_escape(part))
        elif missing and position == len(loc) - 1:
            parts.append(_escape(part))
    return "".join(f"/{part}" for part in parts)


def _has(here: Any, part: int | str) -> bool:
    if isinstance(here, Mapping):
        return part in here
    return isinstance(here, list) and isinstance(part, int) and part < len(here)


def _escape(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _words(item: Any) -> str:
    if item["type"] == "missing":
        return "is required"
    if item["type"] == "json_invalid":  # all else that is no JSON was refused before
        return "a text holds half of a surrogate pair (such as \\ud800), which is no character"
    if item["type"] == "extra_forbidden":
        return f"is not a known field{_meant(str(item['loc'][-1]))}"
    if item["type"] == "union_tag_invalid":
        return _branch(item["msg"])
    if item["type"] == "string_pattern_mismatch" and (said := _pattern_words(item["msg"])):
        return said
    text: str = item["msg"].removeprefix("Value error, ")
    return text[:1].lower() + text[1:] if text.startswith(("Input", "String", "List")) else text


def _branch(message: str) -> str:
    """Which types there are, and the one that was probably meant.

    `message` is pydantic's: "Input tag 'a' found using 'type' does not match any of the expected
    tags: 'b', 'c'".
    """
    said, _, expected = message.partition("expected tags: ")
    tag = said.removeprefix("Input tag '").partition("' found using")[0]
    near = get_close_matches(tag, [one.strip(" '") for one in expected.split(",")], n=1)
    return f"type must be one of {expected}" + (f"; did you mean {near[0]}?" if near else "")


def _pattern_words(message: str) -> str:
    """What a pattern asks for; an empty string for one that has no words."""
    return next((said for pattern, said in PATTERN_WORDS.items() if f"'{pattern}'" in message), "")


def _meant(name: str) -> str:
    """The field that was probably meant, wherever in a job it belongs."""
    known = _field_names()
    near = [to_camel(name)] if to_camel(name) in known else get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


@lru_cache(maxsize=1)
def _field_names() -> tuple[str, ...]:
    """Of a job and of all that is in it. Kept: the schema takes a tenth of a second to make."""
    schema = RLHFJob.model_json_schema(by_alias=True)
    parts = [schema, *schema.get("$defs", {}).values()]
    return tuple(sorted({name for part in parts for name in part.get("properties", {})}))


def _summary(found: Sequence[Fault]) -> str:
    first = f"{found[0].pointer} {found[0].detail}".lstrip()
    return first if len(found) == 1 else f"{first} (and {len(found) - 1} more)"
