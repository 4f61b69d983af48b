"""One sample of every wire message, made from the types alone, for the golden file.

`python -m ebbtide.testing.samples > tests/golden/wire-v1.txt` writes the file again after a
change of `ebbtide.wire` that is meant.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from msgspec import inspect

from ebbtide import wire

_FIXED: dict[type[inspect.Type], Any] = {
    inspect.IntType: 7,
    inspect.FloatType: 0.5,
    inspect.BoolType: True,
    inspect.BytesType: b"\x01\x02\x03\x04",
}


def message_types() -> list[type[wire.Wire]]:
    """Every message of `ebbtide.wire`, by name."""
    found = {name: t for name, t in vars(wire).items() if isinstance(t, type)}
    return [t for _, t in sorted(found.items()) if issubclass(t, wire.Wire) and t != wire.Wire]


def sample(kind: type[msgspec.Struct]) -> Any:
    """A value of `kind` with every field set, optional ones too; always the same."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return kind(**{field.name: _value(field.name, field.type) for field in info.fields})


def golden_lines() -> list[str]:
    """One line per message: its name and its bytes in hex."""
    return [f"{kind.__name__} {wire.encode(sample(kind)).hex()}" for kind in message_types()]


def _value(name: str, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        return _value(name, next(t for t in kind.types if not isinstance(t, inspect.NoneType)))
    if isinstance(kind, inspect.StructType):
        return sample(kind.cls)
    if isinstance(kind, inspect.VarTupleType):
        return (_value(name, kind.item_type),)
    if isinstance(kind, inspect.TupleType):
        return tuple(_value(name, item) for item in kind.item_types)
    if isinstance(kind, inspect.StrType):
        return name
    return _FIXED[type(kind)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(golden_lines()) + "\n")
