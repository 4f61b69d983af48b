"""Users' environments with every fault, for tests of the reward service (never of a real job)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ebbtide.errors import Temporary
from ebbtide.rewards.environments import LARGEST_REPLY

Transcript = Sequence[Mapping[str, str]]


def guess(*, transcript: Transcript, reference: Mapping[str, Any], **_: Any) -> str | None:
    """Say whether the number is higher or lower than the last guess; over when it is right."""
    said, wanted = transcript[-1]["content"], int(reference["answer"])
    if not said.isdecimal():
        return "a number"
    number = int(said)
    return None if number == wanted else "higher" if number < wanted else "lower"


def obedient(*, transcript: Transcript, **_: Any) -> str | None:
    """Do what the policy's last turn says; a word that is none of these ends the episode."""
    said = transcript[-1]["content"]
    acts: dict[str, Any] = {
        "raise": raises,
        "outage": outage,
        "flood": flood,
        "hang": lambda **_: time.sleep(3600),
        "crash": lambda **_: os.kill(os.getpid(), signal.SIGKILL),
        "go": lambda **_: "on",
    }
    act = acts.get(said)
    return act() if act else None


def raises(**_: Any) -> str:
    """A mistake of its author."""
    return str(1 / 0)


def outage(**_: Any) -> str:
    """What it needs is away."""
    raise Temporary("away")


def number(**_: Any) -> int:
    """Not a reply."""
    return 7


def flood(**_: Any) -> str:
    """Far too much."""
    return "a" * (LARGEST_REPLY + 1)


def half(**_: Any) -> str:
    """Half of a surrogate pair, as JSON may have it: no text."""
    return "\ud83d"
