"""JSON Lines by one rule, for the look at submission and for the preparation.

A line that holds nothing is passed over, a byte order mark is dropped, and every other line is a
JSON object that is not nested too deeply to be read.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ebbtide.errors import Refused


def filled(file: BinaryIO, *, most: int = -1) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of each line that holds something.

    `most` is for who wants the first line alone: it is cut there, and later numbers are wrong.
    """
    for number, line in enumerate(iter(partial(file.readline, most), b""), start=1):
        if line.removeprefix(codecs.BOM_UTF8).strip():
            yield number, line


def row(line: bytes, *, place: str) -> dict[str, Any]:
    """The object on `line`; raises Refused that names `place`, as rows.jsonl:17."""
    try:
        return msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8), type=dict[str, Any])
    except RecursionError:
        raise Refused(f"{place} is nested too deeply", field="uri") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{place} is not a JSON object: {error}", field="uri") from None
