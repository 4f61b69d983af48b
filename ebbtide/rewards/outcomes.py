"""What is scored and what a component says of it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """One answer to one prompt. `reference` is a JSON object: the row's other fields."""

    prompt: str
    response: str
    reference: bytes
    task: str


class Worth(msgspec.Struct, frozen=True, tag="worth"):
    """A number. `fault` names the answer's own fault: format | memory."""

    value: float
    fault: str = ""


class Unusable(msgspec.Struct, frozen=True, tag="unusable"):
    """Not the answer's fault: the verifier raised, or the reference cannot be used."""

    why: str


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """Infrastructure; may pass when tried again."""

    error_class: str
    detail: str


Outcome = Worth | Unusable | Broken


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """One outcome and its seconds per component of the job, in the job's order."""

    outcomes: tuple[Outcome, ...]
    seconds: tuple[float, ...]


Reference = Mapping[str, Any]
Scorer = Callable[[Answer, Reference], Outcome]
"""Judges an answer against its decoded reference."""
