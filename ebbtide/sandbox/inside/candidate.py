"""Inside the cell: runs a program and answers calls of its functions with plain data.

Started by the tester as a script; needs the standard library alone. Lines of JSON go both ways.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any


def encode(value: Any) -> Any:
    """`value` as JSON that tells lists, tuples, sets, dictionaries and bytes apart."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item) for item in value]}
    raise TypeError(f"{type(value).__name__} cannot leave the program")


def serve(program: str, source: io.TextIOBase, sink: io.TextIOBase) -> None:
    """Run `program`, tell its callables, then answer each call until the tester hangs up."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "program", "exec"), names)  # noqa: S102 - what this process is for
    _say(sink, {"ready": [name for name, value in names.items() if callable(value)]})
    for line in source:
        call = json.loads(line)
        try:
            args, more = decode(call["args"]), decode(call["kwargs"])
            reply = {"value": encode(names[call["name"]](*args, **more))}
        except Exception as error:  # noqa: BLE001 - the test hears of it
            reply = {"raise": [type(error).__name__, str(error)[:1000]]}
        _say(sink, reply)


def decode(value: Any) -> Any:
    """What `encode` was given; raises ValueError, KeyError or TypeError for anything else."""
    if not isinstance(value, dict):
        return value
    [(kind, items)] = value.items()
    if kind == "bytes":
        return bytes.fromhex(items)
    if kind == "dict":
        return {decode(key): decode(item) for key, item in items}
    kinds: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    return kinds[kind](decode(item) for item in items)


def _say(sink: io.TextIOBase, message: object) -> None:
    sink.write(json.dumps(message) + "\n")
    sink.flush()


def main(calls: int, answers: int) -> None:
    """Read the program and then calls from descriptor `calls`; answer on `answers`."""
    with open(calls, encoding="utf-8") as source, open(answers, "w", encoding="utf-8") as sink:
        serve(json.loads(source.readline()), source, sink)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
