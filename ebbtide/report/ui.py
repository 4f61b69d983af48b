"""The gateway's pages: jobs, one job, two jobs side by side. No script, nothing fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ebbtide.api import Event, Job, Sample, SliceList
from ebbtide.report import charts
from ebbtide.report.charts import Axes, Line
from ebbtide.report.data import ReportData
from ebbtide.report.page import environment, tiles
from ebbtide.report.sections import Section
from ebbtide.report.views import sections
from ebbtide.reports import StepReport
from ebbtide.status import CostStatus, Progress, read

REFRESH_SECONDS = 5
Points = tuple[tuple[float, float], ...]


class Shown(msgspec.Struct, frozen=True):
    """What the page of one job shows. `live`: it is to be loaded again while the job runs.

    `keys`: what samples can be told apart by.
    """

    data: ReportData
    step: int
    samples: Sequence[Sample]
    events: Sequence[Event]
    slices: SliceList
    keys: Sequence[str]
    live: bool

    @property
    def other_query(self) -> str:
        """What leads to the same page that loads itself again, or stops to."""
        by = "".join(f"&by={key}" for key in self.slices.by)
        return f"?live={int(not self.live)}{by}"


def login_page(*, wrong: bool) -> str:
    """Asks for a token."""
    return _page("ui_login.html.j2", title="Sign in", wrong=wrong, refresh=0)


def jobs_page(jobs: Sequence[Job]) -> str:
    """A table of jobs."""
    columns = ("job", "state", "step", "reward", "held-out", "cost", "submitted")
    rows = [(job.name, _row(job)) for job in jobs]
    return _page("ui_jobs.html.j2", title="Jobs", columns=columns, rows=rows, refresh=0)


def _row(job: Job) -> tuple[str, ...]:
    progress = read(job.status, "progress", Progress)
    cost = read(job.status, "cost", CostStatus)
    said = job.status.get("progress", {})
    total = progress.total_steps or job.spec.get("training", {}).get("totalSteps", 0)
    money = "unknown" if cost.accrued is None else f"{cost.accrued:.4f} {cost.currency}"
    return (
        job.state,
        f"{progress.step}/{total}",
        _figure(said.get("reward")),
        _figure(said.get("evalReward")),
        money,
        job.metadata.creation_timestamp[:19],
    )


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def job_page(shown: Shown) -> str:
    """Curves, actors, cost, samples and events of one job."""
    job = shown.data.job
    return _page(
        "ui_job.html.j2",
        title=job.name,
        job=job,
        tiles=tiles(shown.data),
        sections=sections(shown.data),
        step=shown.step,
        samples=shown.samples,
        events=list(reversed(shown.events)),
        slices=shown.slices,
        keys=shown.keys,
        other_query=shown.other_query,
        pausable=not job.terminal,
        refresh=REFRESH_SECONDS if shown.live and not job.terminal else 0,
    )


def compare_page(one: ReportData, other: ReportData) -> str:
    """The same figures and curves of two jobs."""
    both = (one, other)
    figures = [
        (mine[1], (mine[0], its[0])) for mine, its in zip(tiles(one), tiles(other), strict=True)
    ]
    drawn = [_curve(both, *curve) for curve in _CURVES]
    return _page(
        "ui_compare.html.j2",
        title="Compare",
        names=[data.job.name for data in both],
        figures=figures,
        sections=[section for section in drawn if section is not None],
        refresh=0,
    )


def _rewards(steps: Sequence[StepReport]) -> Points:
    return tuple((float(s.step), s.rewards.mean) for s in steps if s.rewards)


def _held_out(steps: Sequence[StepReport]) -> Points:
    return tuple((float(s.step), s.evaluation.mean) for s in steps if s.evaluation)


def _seconds(steps: Sequence[StepReport]) -> Points:
    return tuple((float(s.step), s.seconds) for s in steps)


def _lengths(steps: Sequence[StepReport]) -> Points:
    return tuple((float(s.step), s.tokens.mean) for s in steps if s.tokens.response)


_CURVES: tuple[tuple[str, str, Callable[[Sequence[StepReport]], Points]], ...] = (
    ("Reward", "mean reward", _rewards),
    ("Held-out reward", "mean reward", _held_out),
    ("Step time", "seconds", _seconds),
    ("Length of responses", "tokens", _lengths),
)


def _curve(
    both: Sequence[ReportData],
    title: str,
    unit: str,
    points: Callable[[Sequence[StepReport]], Points],
) -> Section | None:
    names = _distinct([data.job.name for data in both])
    lines = [
        Line(name, f"c{i}", points(data.steps))
        for i, (name, data) in enumerate(zip(names, both, strict=True), start=1)
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    table = {line.name: dict(line.points) for line in lines}
    numbers = sorted({x for line in lines for x, _ in line.points})
    ends = " ".join(f"{line.name} ends at {line.points[-1][1]:.3f}." for line in lines)
    return Section(
        title=title,
        note=ends,
        svg=charts.lines(Axes(f"{title} of both jobs", ends, "step", unit), lines),
        legend=tuple((line.css, line.name) for line in lines),
        columns=("step", *table),
        rows=tuple(
            (f"{x:.0f}", *(_figure(column.get(x)) for column in table.values())) for x in numbers
        ),
    )


def _distinct(names: list[str]) -> list[str]:
    return names if len(set(names)) == len(names) else [f"{n} ({i})" for i, n in enumerate(names)]


def _page(template: str, **values: object) -> str:
    return environment().get_template(template).render(**values)
