"""User functions with every fault, for tests of the reward service (never of a real job)."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from ebbtide.errors import Temporary


def obedient(*, prompt: str, response: str, reference: dict[str, Any]) -> Any:
    """Do what the response says: a number is returned, a word is a fault."""
    words: dict[str, Any] = {
        "raise": lambda: 1 / 0,
        "exit": lambda: sys.exit(3),
        "nan": lambda: float("nan"),
        "inf": lambda: float("inf"),
        "text": lambda: "much",
        "none": lambda: None,
        "hang": lambda: time.sleep(3600),
        "spin": _spin,
        "memory": lambda: bytearray(1 << 40),
        "file": lambda: open("/nowhere/at/all").close(),  # noqa: PTH123
        "outage": _outage,
        "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "print": lambda: print("not a frame") or 1,  # noqa: T201
        "prompt": lambda: len(prompt),
        "reference": lambda: reference["answer"],
    }
    return words[response]() if response in words else float(response)


def _spin() -> None:
    while True:
        pass


def _outage() -> None:
    raise Temporary("the judge is away")


class Unspeakable(Exception):
    """An exception whose message raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def unspeakable(**_: Any) -> float:
    """Raise what cannot be described."""
    raise Unspeakable
