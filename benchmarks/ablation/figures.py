"""From step reports to figures with confidence intervals (pure)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ebbtide.reports import StepReport

_T95 = (math.inf, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 %, by degrees of freedom; beyond the table 2."""


@dataclass(frozen=True)
class Step:
    """One step: wall seconds, seconds of decoding, actor-seconds held (all causes) and busy."""

    seconds: float
    decode: float
    held: float
    busy: float
    actors: int
    computed: int
    moved: int


@dataclass(frozen=True)
class Outcome:
    """The measured steps of a variant, in order: step i of each variant has the same answers."""

    steps: Sequence[Step]

    @property
    def seconds(self) -> float:
        """Mean time of a step."""
        return statistics.fmean(step.seconds for step in self.steps)

    @property
    def actor_seconds(self) -> float:
        """Mean actor-seconds of a step, whatever they were held for."""
        return statistics.fmean(step.held for step in self.steps)

    def released(self) -> Outcome:
        """As if each actor were let go once it has finished, and were back at once for nothing."""
        return Outcome([replace(step, held=step.busy) for step in self.steps])


def step_of(report: StepReport) -> Step:
    """What the planner reported; seconds of actors are those that the job pays for."""
    paid = [entry for entry in report.cost.entries if entry.role == "decode"]
    busy = sum(e.seconds for e in paid if e.cause in ("busy", "wasted"))
    return Step(
        seconds=report.seconds,
        decode=report.phases.decode,
        held=sum(entry.seconds for entry in paid),
        busy=busy,
        actors=sum(actor.samples > 0 for actor in report.actors),
        computed=report.prefill.computed,
        moved=report.migration.moved if report.migration else 0,
    )


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean; infinite for one value."""
    if len(values) < 2:
        return math.inf
    t = _T95[len(values) - 1] if len(values) <= len(_T95) else 2.0
    return t * statistics.stdev(values) / math.sqrt(len(values))


def dominates(other: Outcome, ours: Outcome) -> bool:
    """Whether `other` is at least as fast and as cheap."""
    return other.seconds <= ours.seconds and other.actor_seconds <= ours.actor_seconds


def row(part: str, name: str, found: Outcome, base: Outcome) -> list[object]:
    """One line of the table; `time` and `cost` are ratios to `base`, step by step."""
    steps = found.steps
    pairs = list(zip(steps, base.steps, strict=True))
    return [
        part,
        name,
        _with_interval([s.seconds for s in steps], "{:.2f}"),
        f"{statistics.fmean(s.decode for s in steps):.2f}",
        _with_interval([s.held for s in steps], "{:.1f}"),
        f"{statistics.fmean(s.busy for s in steps):.1f}",
        f"{statistics.fmean(s.actors for s in steps):.1f}",
        _with_interval([a.seconds / b.seconds for a, b in pairs], "{:.3f}"),
        _with_interval([a.held / b.held for a, b in pairs], "{:.3f}"),
        f"{statistics.fmean(s.computed for s in steps):.0f}",
        f"{statistics.fmean(s.moved for s in steps):.1f}",
    ]


def _with_interval(values: Sequence[float], form: str) -> str:
    return f"{form.format(statistics.fmean(values))} ± {form.format(interval(values))}"
