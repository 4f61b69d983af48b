"""A part of a job: whole steps, for only these say what their time was used for (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite

import msgspec

from services.gateway.core.cost import Window
from services.gateway.core.tally import StepMark


class Asked(msgspec.Struct, frozen=True):
    """Bounds that somebody gave; times are Unix seconds."""

    first: int | None = None
    last: int | None = None
    since: float | None = None
    until: float | None = None


class Chosen(msgspec.Struct, frozen=True):
    """Steps, and the time from the commit before them to the last one's."""

    steps: range
    time: Window

    def view(self) -> dict[str, float | int | None]:
        """As ebbtide.api.CostWindow."""
        start = self.time.start
        return {
            "firstStep": self.steps[0],
            "lastStep": self.steps[-1],
            "start": start if isfinite(start) else None,
            "end": self.time.end,
        }


def chosen(asked: Asked, marks: Mapping[int, StepMark]) -> Chosen | None:
    """The committed steps that touch what was asked for; None: everything, open step included."""
    if asked == Asked():
        return None
    found = [number for number, mark in marks.items() if _touches(number, mark, asked)]
    if not found:
        return Chosen(range(0), Window())
    steps = range(min(found), max(found) + 1)
    before = marks.get(steps[0] - 1)
    return Chosen(steps, Window(before.end if before else -inf, marks[steps[-1]].end))


def _touches(number: int, mark: StepMark, asked: Asked) -> bool:
    first = 0 if asked.first is None else asked.first
    last = inf if asked.last is None else asked.last
    since = -inf if asked.since is None else asked.since
    until = inf if asked.until is None else asked.until
    return first <= number <= last and mark.end > since and mark.start < until
