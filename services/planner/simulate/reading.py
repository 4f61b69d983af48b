"""Trace files as text to rows: CSV as Azure publishes it, JSON lines as Mooncake does (pure)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence

from ebbtide.errors import Refused
from services.planner.simulate.answers import Row

_PROMPT = ("prompt_tokens", "input_length", "ContextTokens")
_LENGTH = ("length", "output_length", "GeneratedTokens")
_BLOCKS = ("blocks", "hash_ids")


def read_rows(text: str, name: str) -> list[Row]:
    """Every line; raises Refused that names file, row and column.

    `name` ends in .jsonl or .csv (.gz was taken off). Columns by any of their usual names.
    """
    read = _json_lines if name.endswith((".jsonl", ".json")) else _csv_lines
    return [_row(record, number, name) for number, record in enumerate(read(text, name), start=1)]


def _csv_lines(text: str, name: str) -> Iterator[Mapping[str, object]]:
    reader = csv.DictReader(text.splitlines())
    if not reader.fieldnames or not set(_LENGTH) & set(reader.fieldnames):
        raise Refused(
            f"{name}: the first line must name a column {_LENGTH[0]}", field="/lengths/file"
        )
    yield from reader


def _json_lines(text: str, name: str) -> Iterator[Mapping[str, object]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise Refused(f"{name}, row {number}: {error.msg}", field="/lengths/file") from None
        if not isinstance(record, dict):
            raise Refused(f"{name}, row {number}: not an object", field="/lengths/file")
        yield record


def _row(record: Mapping[str, object], number: int, name: str) -> Row:
    where = f"{name}, row {number}"
    blocks = _first(record, _BLOCKS)
    return Row(
        _whole(_first(record, _PROMPT), where, _PROMPT[0], default=1),
        _whole(_first(record, _LENGTH), where, _LENGTH[0]),
        _ids(blocks, where),
    )


def _first(record: Mapping[str, object], names: Sequence[str]) -> object:
    return next((record[name] for name in names if name in record), None)


def _whole(value: object, where: str, name: str, default: int | None = None) -> int:
    if value is None and default is not None:
        return default
    number = _number(value)
    if number is None or number != int(number):
        shown = "is missing" if value in (None, "") else f"{value!r} is not a whole number"
        raise Refused(f"{where}: {name} {shown}", field="/lengths/file")
    return int(number)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _ids(blocks: object, where: str) -> tuple[int, ...]:
    if blocks is None:
        return ()
    if not isinstance(blocks, list) or not all(isinstance(one, int) for one in blocks):
        raise Refused(f"{where}: blocks are not a list of ids", field="/lengths/file")
    return tuple(blocks)
