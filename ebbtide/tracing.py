"""One trace per step: who did what when, as spans that every process can place on its own (pure).

Ids are hashes of what messages carry anyway (job, attempt, step), so no message carries a trace
context and a process that starts anew goes on in the same trace (docs/decisions/0013).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol

import msgspec

Attributes = Mapping[str, str | int | float]


class Span(msgspec.Struct, frozen=True):
    """Work of one role. Times are Unix seconds; an empty `parent` makes it the trace's root."""

    role: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    start: float
    end: float
    attributes: Attributes


class Spans(Protocol):
    """Takes spans; never waits and never raises."""

    on: bool
    """Whether anybody looks at them: without, none need be made."""

    def add(self, span: Span) -> None:
        """Have it exported."""
        ...

    def close(self) -> None:
        """Export what is left; takes a few seconds at most."""
        ...


class NoSpans:
    """Nobody looks."""

    on = False

    def add(self, span: Span) -> None:
        """Forget it."""

    def close(self) -> None:
        """Nothing is left."""


NO_SPANS = NoSpans()


class StepTrace(msgspec.Struct, frozen=True):
    """The trace of one step of one attempt."""

    job_uid: str
    attempt: int
    step: int

    @property
    def id(self) -> bytes:
        """16 bytes."""
        return _hash(f"{self.job_uid}/{self.attempt}/{self.step}", 16)

    @property
    def root(self) -> bytes:
        """Id of the step's own span, 8 bytes."""
        return _hash(f"{self.job_uid}/{self.attempt}/{self.step}/step", 8)

    def whole(self, role: str, start: float, end: float, attributes: Attributes) -> Span:
        """The step's own span."""
        own: Attributes = {"ebbtide.job_uid": self.job_uid, "ebbtide.attempt": self.attempt}
        told = {**own, **attributes}
        return Span(role, f"step {self.step}", self.id, self.root, b"", start, end, told)

    def part(  # noqa: PLR0917 - as Span has them
        self, role: str, name: str, instance: str, start: float, end: float, attributes: Attributes
    ) -> Span:
        """A span below it, by process `instance`; the same work gets the same id."""
        own = _hash(f"{self.id.hex()}/{role}/{name}/{instance}/{start:.6f}", 8)
        place: Attributes = {"ebbtide.step": self.step, "ebbtide.pod": instance}
        told = {**place, **attributes}
        return Span(role, name, self.id, own, self.root, start, end, told)


def _hash(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
