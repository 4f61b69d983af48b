"""Reward functions that do what they should not; named by entry point in test jobs."""

from __future__ import annotations

import math
import threading
from typing import NoReturn


def raises(**_: object) -> NoReturn:
    raise RuntimeError("the verifier is broken")


def hangs(*, response: str, **_: object) -> float:
    """Never returns for some answers."""
    if response < "n":
        threading.Event().wait()
    return 1.0


def not_a_number(**_: object) -> float:
    return math.nan
