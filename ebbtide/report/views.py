"""From a job's data to the sections of its page: charts, legends and tables of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide import reports
from ebbtide.report import charts
from ebbtide.report.charts import Axes, Bar, Line, Series
from ebbtide.report.data import ReportData
from ebbtide.report.learning import learning
from ebbtide.report.planning import planning
from ebbtide.report.scales import label
from ebbtide.report.sections import Section
from ebbtide.reports import StepReport

PHASES = ("plan", "sync", "decode", "score", "learn")
CAUSES = (*reports.CAUSES, "unattributed")
_MAX_BARS = 120
_SLICES = 240


def sections(data: ReportData) -> list[Section]:
    """Every section that the data can fill."""
    first = [rewards(data.steps), *learning(data.steps)]
    found = [*first, step_time(data.steps), actors(data.steps), *planning(data.steps), cost(data)]
    return [section for section in found if section is not None]


def rewards(steps: Sequence[StepReport]) -> Section | None:
    """Mean training reward of each step, and of each held-out evaluation."""
    trained = tuple((float(s.step), s.rewards.mean) for s in steps if s.rewards)
    held_out = tuple((float(s.step), s.evaluation.mean) for s in steps if s.evaluation)
    drawn = [Line("training", "c1", trained), Line("held-out", "c2", held_out)]
    drawn = [line for line in drawn if line.points]
    if not drawn:
        return None
    described = " ".join(
        f"{line.name} from {line.points[0][1]:.3f} to {line.points[-1][1]:.3f}." for line in drawn
    )
    axes = Axes("Reward by step", described, "step", "mean reward")
    rows = [
        (str(s.step), _mean(s.rewards), _mean(s.evaluation))
        for s in steps
        if s.rewards or s.evaluation
    ]
    return Section(
        title="Reward",
        note="Mean reward of each step's samples. Held-out prompts are those of"
        " dataset.eval; an evaluation judges the policy that its step sampled from.",
        svg=charts.lines(axes, drawn),
        legend=tuple((line.css, line.name) for line in drawn),
        columns=("step", "training", "held-out"),
        rows=tuple(rows),
    )


def _mean(stats: object) -> str:
    mean = getattr(stats, "mean", None)
    return "" if mean is None else f"{mean:.4f}"


def step_time(steps: Sequence[StepReport]) -> Section | None:
    """Seconds of each step by phase; what no phase explains is `other`."""
    if not steps:
        return None
    shown = _thinned(steps)
    layers = [
        Series(name, f"c{i}", tuple(getattr(s.phases, name) for s in shown))
        for i, name in enumerate(PHASES, start=1)
    ]
    layers.append(Series("other", "c0", tuple(_other(s) for s in shown)))
    layers = [layer for layer in layers if any(value > 5e-4 for value in layer.values)]
    mean = sum(s.seconds for s in steps) / len(steps)
    axes = Axes("Step time by phase", f"{mean:.2f} s a step on average.", "step", "seconds")
    thinned = "" if len(shown) == len(steps) else f" {len(shown)} of {len(steps)} steps are drawn."
    return Section(
        title="Step time by phase",
        note=f"Wall seconds; what ran hidden under another phase is not counted twice.{thinned}",
        svg=charts.stacked_bars(axes, [float(s.step) for s in shown], layers),
        legend=tuple((layer.css, layer.name) for layer in layers),
        columns=("step", *(f"{name} s" for name in PHASES), "all s"),
        rows=tuple(
            (
                str(s.step),
                *(f"{getattr(s.phases, name):.3f}" for name in PHASES),
                f"{s.seconds:.3f}",
            )
            for s in steps
        ),
    )


def _thinned(steps: Sequence[StepReport]) -> Sequence[StepReport]:
    every = -(-len(steps) // _MAX_BARS)
    return steps[::every]


def _other(step: StepReport) -> float:
    explained: float = sum(getattr(step.phases, name) for name in PHASES)
    return max(0.0, step.seconds - explained)


def actors(steps: Sequence[StepReport]) -> Section | None:
    """How many decode actors there were over time, by what they did."""
    spans = list(_spans(steps))
    if not spans:
        return None
    start = min(begin for _, begin, _ in spans)
    end = max(until for _, _, until in spans)
    width = (end - start) / _SLICES or 1.0
    edges = [i * width for i in range(_SLICES + 1)]
    held = {cause: [0.0] * _SLICES for cause in CAUSES}
    for cause, begin, until in spans:
        for i, share in _shares(begin - start, until - start, width):
            held[cause][i] += share
    layers = [
        Series(cause, f"c-{cause}", tuple(held[cause])) for cause in CAUSES if any(held[cause])
    ]
    seconds = {cause: sum(u - b for c, b, u in spans if c == cause) for cause in CAUSES}
    axes = Axes(
        "Actors over time", f"Over {end - start:.0f} s.", "seconds since the first step", "actors"
    )
    return Section(
        title="Decode actors over time",
        note=f"Mean number of actors in each of {_SLICES} slices of time, by what they did.",
        svg=charts.stacked_areas(axes, edges, layers),
        legend=tuple((layer.css, layer.name) for layer in layers),
        columns=("cause", "actor-seconds"),
        rows=tuple((cause, f"{seconds[cause]:.1f}") for cause in CAUSES if seconds[cause]),
    )


def _spans(steps: Sequence[StepReport]) -> Iterator[tuple[str, float, float]]:
    for step in steps:
        for actor in step.actors:
            for part in actor.intervals:
                yield part.cause, step.started_at + part.start, step.started_at + part.end


def _shares(begin: float, until: float, width: float) -> Iterator[tuple[int, float]]:
    """(slice, share of it) that [begin, until) covers."""
    first = max(0, int(begin / width))
    for i in range(first, min(_SLICES, int(until / width) + 1)):
        covered = min(until, (i + 1) * width) - max(begin, i * width)
        if covered > 0:
            yield i, covered / width


def cost(data: ReportData) -> Section | None:
    """Money, or held seconds where a price is unknown, by role and cause."""
    found = data.cost
    if not found.parts:
        return None
    priced = found.total is not None and found.total > 0
    unit = found.currency if priced else "seconds held"
    rows = [_bar(data, role, priced=priced) for role in sorted(found.by_role)]
    total = f"{found.total:.4f} {found.currency}" if found.total is not None else "unknown"
    axes = Axes("Cost by role and cause", f"Total {total}.", unit, "")
    used = {part.cause for part in found.parts}
    note = f"Total {total} for {found.held_seconds:.0f} s held. What no cause explains is unattributed."
    if found.unpriced_seconds > 0:
        note += f" {found.unpriced_seconds:.0f} s have no price, so their cost is unknown."
    return Section(
        title="Cost by role and cause",
        note=note,
        svg=charts.bars(axes, rows),
        legend=tuple((f"c-{cause}", cause) for cause in CAUSES if cause in used),
        columns=("role", "cause", "seconds", f"cost {found.currency}"),
        rows=tuple(
            (p.role, p.cause, f"{p.seconds:.1f}", "unknown" if p.cost is None else f"{p.cost:.5f}")
            for p in found.parts
        ),
    )


def _bar(data: ReportData, role: str, *, priced: bool) -> Bar:
    parts = sorted(
        (p for p in data.cost.parts if p.role == role), key=lambda p: CAUSES.index(p.cause)
    )
    values = [(p.cause, f"c-{p.cause}", (p.cost or 0.0) if priced else p.seconds) for p in parts]
    total = sum(value for _, _, value in values)
    return Bar(role, tuple(values), label(float(f"{total:.3g}")))
