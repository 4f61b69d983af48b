"""report.html: one file, nothing fetched, light and dark, readable without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from ebbtide.report.data import ReportData
from ebbtide.report.sections import Section
from ebbtide.report.views import sections
from ebbtide.reports import summarise


def environment() -> Environment:
    """Where templates are, and that all they are given is escaped."""
    return Environment(
        loader=PackageLoader("ebbtide.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_html(data: ReportData) -> str:
    """The page of a job."""
    job = data.job
    began = job.metadata.creation_timestamp[:19]
    what = f"{job.spec['algorithm']['type']} on {job.spec['model']['uri']}"
    lines = (
        (job.state, f" - {job.message}" if job.message else ""),
        ("", f"{what}, submitted {began}Z, uid {job.metadata.uid}"),
    )
    return render_page(job.name, lines, tiles(data), sections(data))


def render_page(
    title: str,
    lines: Sequence[tuple[str, str]],
    tiles: Sequence[tuple[str, str, str]],
    sections: Sequence[Section],
    nothing: str = "No step is committed yet.",
) -> str:
    """Any page of this look. `lines`: (in bold, the rest); `tiles`: (figure, what, beside)."""
    page = environment().get_template("report.html.j2")
    return page.render(title=title, lines=lines, tiles=tiles, sections=sections, nothing=nothing)


def tiles(data: ReportData) -> list[tuple[str, str, str]]:
    """(figure, what it is, what it was before or out of) of the summary."""
    found = summarise(data.steps)
    total = data.cost.total
    money = "unknown" if total is None else f"{total:.4f} {data.cost.currency}"
    lost = found.samples_lost + found.samples_doubled
    return [
        (
            _number(found.eval_reward_last),
            "held-out reward",
            f"at first {_number(found.eval_reward_first)}",
        ),
        (_number(found.reward_last), "training reward", f"at first {_number(found.reward_first)}"),
        (str(found.steps), "steps", f"{data.seconds:.0f} s in all"),
        (
            f"{found.samples_accepted:,}",
            "samples accepted",
            f"of {found.samples_expected:,} planned",
        ),
        (str(lost), "samples lost or doubled", f"{found.samples_abandoned} abandoned"),
        (money, "cost", f"{data.cost.held_seconds:.0f} s held"),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
