"""User functions with every fault, for tests of the reward service (never of a real job)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

from ebbtide.errors import Temporary


def turns(*, transcript: list[dict[str, str]], **_: Any) -> float:
    """Worth the number of turns that it was told."""
    return len(transcript)


def obedient(*, prompt: str, response: str, reference: dict[str, Any]) -> Any:
    """Do what the response says: a number is returned, a word is a fault."""
    words: dict[str, Any] = {
        "raise": lambda: 1 / 0,
        "exit": lambda: sys.exit(3),
        "interrupt": _interrupt,
        "nan": lambda: float("nan"),
        "inf": lambda: float("inf"),
        "text": lambda: "much",
        "none": lambda: None,
        "hang": lambda: time.sleep(3600),
        "spin": _spin,
        "memory": lambda: bytearray(
            1 << 62
        ),  # more than a machine can address, however it overcommits
        "cancel": _cancel,
        "surrogate": _half_a_character,
        "narrow": lambda: np.float32(0.5),
        "whole": lambda: np.int64(3),
        "file": lambda: open("/nowhere/at/all").close(),  # noqa: PTH123
        "outage": _outage,
        "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "leave": lambda: os._exit(3),
        "close": lambda: os.closerange(0, 1024),
        "garbage": _garbage,
        "daemon": _daemon,
        "stop the guard": _stop_the_guard,
        "print": lambda: print("not a frame") or 1,  # noqa: T201
        "prompt": lambda: len(prompt),
        "reference": lambda: reference["answer"],
    }
    return words[response]() if response in words else float(response)


def _garbage() -> float:
    """Write to every descriptor there is."""
    for number in range(256):
        with suppress(OSError):
            os.write(number, b"\x03\x00\x00\x00garbage")
    return 1.0


def _stop_the_guard() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3600)


def _spin() -> None:
    while True:
        pass


def _daemon() -> int:
    """Leave a process behind that is in no group and no session of ours; gives its pid."""
    known, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, str(os.getpid()).encode())
            time.sleep(3600)
        os._exit(0)
    return int(os.read(known, 20))


def _interrupt() -> None:
    raise KeyboardInterrupt


def _cancel() -> None:
    raise asyncio.CancelledError


def _half_a_character() -> None:
    raise ValueError("\ud800")


def _outage() -> None:
    raise Temporary("the judge is away")


class Unspeakable(Exception):
    """An exception whose message raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def unspeakable(**_: Any) -> float:
    """Raise what cannot be described."""
    raise Unspeakable


def greedy(*, reference: dict[str, Any], **_: Any) -> float:
    """Take the right answer away from whoever judges next."""
    reference["answer"].clear()
    return 1.0


def looks(*, reference: dict[str, Any], **_: Any) -> float:
    """Worth the number of right answers that it was given."""
    return len(reference["answer"])
