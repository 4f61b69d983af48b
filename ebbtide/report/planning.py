"""What the planner expected and did: lengths, step times, prompts, moves, who was there when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.report import charts
from ebbtide.report.charts import Axes, Line, Series, Stripe
from ebbtide.report.sections import Section
from ebbtide.reports import CAUSES, LengthPoint, StepReport

_POINTS = 800
_ROWS = 64
_STRIPES = 4000
"""Parts of rows that are drawn; of a longer job its last steps."""


def planning(steps: Sequence[StepReport]) -> list[Section]:
    """The sections that the steps can fill."""
    found = (timeline(steps), step_times(steps), lengths(steps), prompts(steps), moves(steps))
    return [section for section in found if section is not None]


def timeline(steps: Sequence[StepReport]) -> Section | None:
    """One row per actor: what it did when."""
    shown = _latest(steps)
    spans = list(_stripes(shown))
    names = sorted({name for name, _ in spans}, key=_by_number)
    if not names or len(names) > _ROWS:
        return None
    begin = min(stripe.start for _, stripe in spans)
    rows = [
        (name, [stripe.moved(-begin) for owner, stripe in spans if owner == name]) for name in names
    ]
    axes = Axes("Actors' timeline", f"{len(names)} actors.", "seconds since the first shown", "")
    drawn = "" if len(shown) == len(steps) else f" The last {len(shown)} steps are drawn."
    used = {stripe.name for _, stripe in spans}
    return Section(
        title="Each actor's time",
        note=f"One row per decode actor, from its start to its end.{drawn}",
        svg=charts.stripes(axes, rows),
        legend=tuple((f"c-{cause}", cause) for cause in CAUSES if cause in used),
        columns=("actor", "held s", "busy s"),
        rows=tuple((name, _seconds(row), _seconds(row, "busy")) for name, row in rows),
    )


def _latest(steps: Sequence[StepReport]) -> Sequence[StepReport]:
    """As many of the last steps as can be drawn."""
    parts = 0
    for at in range(len(steps) - 1, -1, -1):
        parts += sum(len(actor.intervals) for actor in steps[at].actors)
        if parts > _STRIPES:
            return steps[at + 1 :]
    return steps


def _stripes(steps: Sequence[StepReport]) -> Iterator[tuple[str, Stripe]]:
    for step in steps:
        for actor in step.actors:
            for part in actor.intervals:
                start, end = step.started_at + part.start, step.started_at + part.end
                yield actor.name, Stripe(part.cause, f"c-{part.cause}", start, end)


def _by_number(name: str) -> tuple[str, int]:
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)


def _seconds(row: Sequence[Stripe], name: str = "") -> str:
    return f"{sum(s.end - s.start for s in row if not name or s.name == name):.1f}"


def step_times(steps: Sequence[StepReport]) -> Section | None:
    """Predicted against realised seconds of each step that was predicted."""
    known = [
        (step.step, step.decision.predicted_step_seconds, step.decision.realised_step_seconds)
        for step in steps
        if step.decision and step.decision.predicted_step_seconds is not None
    ]
    if not known:
        return None
    drawn = [
        Line("predicted", "c1", tuple((float(n), p or 0.0) for n, p, _ in known)),
        Line("realised", "c2", tuple((float(n), r) for n, _, r in known)),
    ]
    gaps = sorted(abs((p or 0.0) - r) / r for _, p, r in known if r > 0)
    middle = f"{gaps[len(gaps) // 2]:.0%}" if gaps else "-"
    axes = Axes("Step time", f"Median error {middle}.", "step", "seconds")
    return Section(
        title="Step time, predicted and realised",
        note=f"As the planner expected it when it laid the step out. Median error {middle}.",
        svg=charts.lines(axes, drawn),
        legend=(("c1", "predicted"), ("c2", "realised")),
        columns=("step", "predicted s", "realised s"),
        rows=tuple((str(n), f"{p or 0.0:.3f}", f"{r:.3f}") for n, p, r in known),
    )


def lengths(steps: Sequence[StepReport]) -> Section | None:
    """Predicted against realised lengths of answers, the latest ones."""
    every = [
        (step.step, point)
        for step in steps
        if step.decision
        for point in step.decision.lengths
        if point.expected > 0
    ]
    points = every[-_POINTS:]
    if not points:
        return None
    axes = Axes("Lengths", f"{len(points)} answers.", "expected tokens", "realised tokens")
    return Section(
        title="Answer lengths, predicted and realised",
        note=f"The last {len(points)} of the answers that the reports name. On the line a forecast"
        " is right; answers that the limit ended could have been longer.",
        svg=charts.scatter(axes, [_dot(point) for _, point in points]),
        legend=(("c1", "ended by itself"), ("c4", "ended by the limit")),
        columns=("step", "expected", "P90", "realised"),
        rows=tuple(
            (str(n), f"{p.expected:.1f}", f"{p.p90:.1f}", str(p.realised)) for n, p in points
        ),
    )


def _dot(point: LengthPoint) -> tuple[float, float, str]:
    return point.expected, float(point.realised), "c4" if point.cut else "c1"


def prompts(steps: Sequence[StepReport]) -> Section | None:
    """Prompt tokens that were computed, and those that were not."""
    counted = [step for step in steps if step.prefill.needed]
    if not counted:
        return None
    kinds = {
        "computed": [float(s.prefill.computed) for s in counted],
        "saved by dedup": [float(max(0, s.prefill.saved_by_dedup)) for s in counted],
        "saved by caching": [float(s.prefill.saved_by_caching) for s in counted],
    }
    layers = [
        Series(name, css, tuple(values))
        for (name, values), css in zip(kinds.items(), ("c1", "c3", "c5"), strict=True)
        if any(values)
    ]
    needed = sum(s.prefill.needed for s in counted)
    share = sum(s.prefill.computed for s in counted) / needed
    axes = Axes("Prompt tokens", f"{share:.1%} were computed.", "step", "tokens")
    return Section(
        title="Prompt tokens computed and saved",
        note=f"Of what engines that share nothing would compute, {share:.1%} were computed."
        " Caching: an actor had a text that begins alike. Dedup: an actor took over what another"
        " engine had computed, the prefill service or the actor that a sample came from.",
        svg=charts.stacked_bars(axes, [float(s.step) for s in counted], layers),
        legend=tuple((layer.css, layer.name) for layer in layers),
        columns=("step", *kinds),
        rows=tuple(
            (str(s.step), *(f"{kinds[name][i]:.0f}" for name in kinds))
            for i, s in enumerate(counted)
        ),
    )


def moves(steps: Sequence[StepReport]) -> Section | None:
    """Samples that moved between actors while they ran."""
    counted = [(step.step, step.migration) for step in steps if step.migration]
    if not any(found.ordered for _, found in counted):
        return None
    kinds = {
        "with KV": [float(m.with_kv) for _, m in counted],
        "recomputed": [float(m.recomputed) for _, m in counted],
        "finished first": [float(m.finished) for _, m in counted],
        "failed": [float(m.failed) for _, m in counted],
    }
    layers = [
        Series(name, css, tuple(values))
        for (name, values), css in zip(kinds.items(), ("c3", "c2", "c0", "c5"), strict=True)
        if any(values)
    ]
    moved = sum(found.moved for _, found in counted)
    axes = Axes("Moves", f"{moved} samples moved.", "step", "samples")
    return Section(
        title="Samples moved between actors",
        note=f"{moved} samples went on with another actor while they ran. Failed: they stayed, or"
        " somebody else went on.",
        svg=charts.stacked_bars(axes, [float(n) for n, _ in counted], layers),
        legend=tuple((layer.css, layer.name) for layer in layers),
        columns=("step", "at s", "from", "to", "samples", "how"),
        rows=tuple(
            (str(n), f"{m.at:.1f}", m.source, m.target, str(m.samples), m.how)
            for n, found in counted
            for m in found.moves
        ),
    )
