"""A model's own files as the tensors of a publication, read without torch.

Where nothing learns, nobody has to load a model to publish it: the digests of the bytes in its
safetensors files are those that a learner of the same data type would publish.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.data.tokenizers import TOKENIZER_FILES
from ebbtide.errors import Refused
from ebbtide.wire import PolicyTensor

PUBLISHED_FILES = (*TOKENIZER_FILES, "chat_template.jinja")
"""What of a tokenizer's folder goes into a publication, where it is there."""
TABLE = "model.safetensors.index.json"
_FIELD = "/model/uri"
_MOST_HEADER = 100_000_000
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_OTHERS = {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}
_DTYPES = {**_FLOATS, **_OTHERS, "BOOL": "bool"}
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class _Place(msgspec.Struct, frozen=True):
    """Where a tensor lies: bytes `start` to `end` of its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files that hold the weights, and the table of several; raises Refused."""
    table, single = folder / TABLE, folder / "model.safetensors"
    if table.is_file():
        try:
            names = sorted(set(json.loads(table.read_bytes())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise Refused(f"{TABLE} is no table of weights", field=_FIELD) from error
        files = tuple(folder / Path(str(name)).name for name in names)
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise Refused(f"{TABLE} names {missing[0]}, which is not there", field=_FIELD)
        return files
    if single.is_file():
        return (single,)
    raise Refused(f"{folder} has no model.safetensors: save the model as safetensors", field=_FIELD)


def check_weights(folder: Path, dtype: str) -> None:
    """Look at the headers alone; raises Refused unless the files can be published as they are."""
    for file in weight_files(folder):
        _check(file, _places(file), dtype)


def described(folder: Path, dtype: str) -> tuple[PolicyTensor, ...]:
    """Every tensor of the model with the digest of its bytes, by name; raises Refused.

    `dtype`: what its floating-point tensors must be.
    """
    found: dict[str, PolicyTensor] = {}
    for file in weight_files(folder):
        places = _places(file)
        _check(file, places, dtype)
        found |= {tensor.name: tensor for tensor in _digested(file, places)}
    return tuple(found[name] for name in sorted(found))


def tied(tensors: Mapping[str, PolicyTensor]) -> tuple[tuple[str, str], ...]:
    """The usual head that files leave out because it is the embedding; one too many does no harm."""
    lacks = _HEAD not in tensors and _EMBEDDING in tensors
    return ((_HEAD, _EMBEDDING),) if lacks else ()


def _check(file: Path, places: tuple[_Place, ...], dtype: str) -> None:
    for place in places:
        if place.dtype in _FLOATS.values() and place.dtype != dtype:
            fix = (
                f"set model.dtype: {place.dtype}"
                if place.dtype in ("float32", "bfloat16")
                else "save the model as float32 or bfloat16"
            )
            raise Refused(
                f"{place.name} in {file.name} is {place.dtype}, model.dtype is {dtype}, and files"
                f" are published as they are: {fix}",
                field=_FIELD,
            )


def _places(file: Path) -> tuple[_Place, ...]:
    """What the header says: 8 bytes of length, then JSON; offsets count from its end."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if not 0 < length <= min(_MOST_HEADER, file.stat().st_size):
                raise Refused(f"{file.name} is no safetensors file", field=_FIELD)
            header: dict[str, Any] = json.loads(opened.read(length))
        return tuple(_parsed(header, 8 + length, file.stat().st_size))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused(f"{file.name} is no safetensors file", field=_FIELD) from error


def _parsed(header: Mapping[str, Any], begin: int, size: int) -> Iterator[_Place]:
    for name, told in header.items():
        if name == "__metadata__":
            continue
        kind = told["dtype"]
        if kind not in _DTYPES:
            raise Refused(f"{name} has the data type {kind}: not published", field=_FIELD)
        first, last = (begin + int(at) for at in told["data_offsets"])
        if not begin <= first <= last <= size:
            raise ValueError("a tensor lies outside of its file")
        yield _Place(name, _DTYPES[kind], tuple(map(int, told["shape"])), first, last)


def _digested(file: Path, places: tuple[_Place, ...]) -> list[PolicyTensor]:
    """Hash in threads: it releases the interpreter lock."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
        ThreadPoolExecutor() as pool,
    ):

        def one(place: _Place) -> PolicyTensor:
            with data[place.start : place.end] as part:
                digest = hashlib.sha256(part).hexdigest()
            return PolicyTensor(place.name, place.dtype, place.shape, file.name, digest)

        return list(pool.map(one, places))
