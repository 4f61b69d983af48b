"""Rows from files and generators, as they are: no tokenizer, no blob store.

Who uses it: `prepare`, in its own process. Libraries are imported where a source needs them.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ebbtide import gym
from ebbtide.data import jsonl, patterns
from ebbtide.errors import Refused
from ebbtide.spec import FileSource, ReasoningGymSource, Source

_NUMBERED = Iterator[tuple[int, Mapping[str, Any]]]
"""Rows with their numbers from 1: of the line in a text file, else of the row."""

_UNREADABLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
"""What a name or its rights are to blame for; a disk that fails is not the job's fault."""


class RawRow(msgspec.Struct, frozen=True):
    """One row of a source. `place` is what people look for: rows.jsonl:17 (from 1)."""

    place: str
    fields: Mapping[str, Any]
    source: str
    task: str


def read(source: Source) -> Iterator[RawRow]:
    """All rows, in the source's order; raises Refused at the first that cannot be read."""
    if isinstance(source, ReasoningGymSource):
        return _generate(source)
    readers: dict[str, Callable[[FileSource, Path], _NUMBERED]] = {
        "jsonl": _jsonl,
        "parquet": _parquet,
        "hf": _hf,
    }
    return _file_rows(source, readers[source.type])


def content(source: Source) -> dict[str, Any]:
    """What fixes the rows, as JSON: digests of files, or the generator's name and version.

    Raises Refused for a file that may not be read.
    """
    named = source.model_dump(mode="json", exclude={"uri"})
    if isinstance(source, ReasoningGymSource):
        return {**named, "version": version("reasoning-gym")}
    files = _files(source)
    names = _names(files)
    with _readable(source):
        digests = [[name, _digest(path)] for name, path in zip(names, files, strict=True)]
    return {**named, "files": digests}


def local_path(uri: str) -> Path:
    """The path that a URI names: file:///... or a plain path."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else uri)
    raise Refused(f"cannot read {uri}: only files and folders can be read", field="uri")


# --- files ------------------------------------------------------------------------------------


def _file_rows(
    source: FileSource, reader: Callable[[FileSource, Path], _NUMBERED]
) -> Iterator[RawRow]:
    paths = [local_path(source.uri)] if source.type == "hf" else _files(source)
    for name, path in zip(_names(paths), paths, strict=True):
        for number, fields in reader(source, path):
            task = fields.get("task")
            yield RawRow(
                place=f"{name}:{number}",
                fields=fields,
                source=name,
                task=task if isinstance(task, str) and task else source.task,
            )


def _files(source: FileSource) -> list[Path]:
    """Every file of the source, sorted; raises Refused when there is none."""
    path = local_path(source.uri)
    found = patterns.below(path) if source.type == "hf" else patterns.matching(path)
    if not found:
        raise Refused(f"no file at {source.uri}", field="uri")
    return found


def _names(paths: Sequence[Path]) -> list[str]:
    """Short and distinct: file names, or as many folders before them as it takes."""
    depth = 1
    while True:
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        depth += 1


@contextmanager
def _readable(source: FileSource) -> Iterator[None]:
    """Refuse what `source` names but nobody, or not we, can open."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise Refused(f"cannot read {source.uri}: {error.strerror}", field="uri") from None


def _jsonl(source: FileSource, path: Path) -> _NUMBERED:
    with _readable(source), path.open("rb") as file:
        for number, line in jsonl.filled(file):
            yield number, jsonl.row(line, place=f"{path.name}:{number}")


def _parquet(source: FileSource, path: Path) -> _NUMBERED:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    number = itertools.count(1)
    try:
        with _readable(source), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                yield from ((next(number), row) for row in batch.to_pylist())
    except pa.ArrowException as error:
        raise Refused(f"{path.name} is not a Parquet file: {_line(error)}", field="uri") from None


def _hf(source: FileSource, path: Path) -> _NUMBERED:
    import datasets  # noqa: PLC0415

    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError) as error:
        detail = f"{source.uri} is no folder of datasets.save_to_disk: {_line(error)}"
        raise Refused(detail, field="uri") from None
    if not isinstance(loaded, datasets.DatasetDict):
        return enumerate(loaded, start=1)
    if source.split not in loaded:
        have = ", ".join(sorted(loaded))
        raise Refused(
            f"split {source.split!r} is not in {source.uri}: it has {have}", field="split"
        )
    return enumerate(loaded[source.split], start=1)


# --- generators -------------------------------------------------------------------------------


def _generate(source: ReasoningGymSource) -> Iterator[RawRow]:
    try:
        dataset = gym.package().create_dataset(
            source.task, size=source.size, seed=source.seed, **source.config
        )
    except (ValueError, TypeError, AssertionError) as error:
        raise Refused(f"reasoning_gym: {_line(error)}", field="config") from None
    _check_survives_json(dataset)
    for number in range(source.size):
        entry = dataset[number]
        prompt = source.template.replace("{question}", entry["question"])
        messages = [{"role": "user", "content": prompt}]
        yield RawRow(
            place=f"{source.task}:{number + 1}",
            fields={**entry, "prompt": messages if source.conversational else prompt},
            source="reasoning_gym",
            task=source.task,
        )


def _check_survives_json(dataset: Any) -> None:
    """Refuse tasks whose scorer needs more than JSON keeps (tuples of arc_agi, for one)."""
    entry = dataset[0]
    answer = entry["answer"]
    if answer is None:
        return
    copy = json.loads(to_json(entry))
    if dataset.score_answer(answer, copy) != dataset.score_answer(answer, entry):
        detail = "entries of this task do not survive JSON: its own answer scores differently"
        raise Refused(detail, field="task")


def to_json(value: Any) -> bytes:
    """`value` as JSON; raises TypeError for what JSON cannot say."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
