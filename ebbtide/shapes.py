"""Reads a model's sizes from its folder: config.json, and the headers of its safetensors files."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.estimate import ModelShape, shape_of

_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100 << 20
"""Bytes; the format itself allows no more."""


def read_shape(folder: Path) -> ModelShape | None:
    """The model's shape; None where the folder has none that is understood."""
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
        files = sorted(folder.glob("*.safetensors"))
        parameters = sum(map(_parameters, files))
    except (OSError, msgspec.DecodeError, ValueError, struct.error):
        return None
    return shape_of(config, parameters) if parameters else None


def _parameters(path: Path) -> int:
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if length > _MOST_HEADER:
            raise ValueError(f"{path} is no safetensors file")
        header = msgspec.json.decode(file.read(length), type=dict[str, Any])
    return sum(prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
