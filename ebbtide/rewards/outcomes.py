"""What is scored and what a component says of it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What was said in one turn. role: assistant (the policy) | user | tool."""

    role: str
    content: str


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """One answer to one prompt. `reference` is a JSON object: the row's other fields.

    Of an episode `response` is the policy's last turn, and `transcript` has all turns; else that
    is empty.
    """

    prompt: str
    response: str
    reference: bytes
    task: str
    transcript: tuple[Message, ...] = ()

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The transcript as users' functions get it."""
        return [{"role": one.role, "content": one.content} for one in self.transcript]


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


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """What an environment says to the policy; None: the episode is over."""

    text: str | None


Outcome = Worth | Unusable | Broken | Reply


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """One outcome and its seconds per component of the job, in the job's order."""

    outcomes: tuple[Outcome, ...]
    seconds: tuple[float, ...]


Reference = Mapping[str, Any]
Scorer = Callable[[Answer, Reference], Outcome]
"""Judges an answer against its decoded reference."""
