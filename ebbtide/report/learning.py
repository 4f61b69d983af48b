"""What the learner says of its updates, as curves over steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ebbtide.report import charts
from ebbtide.report.charts import Axes, Line
from ebbtide.report.sections import Section
from ebbtide.reports import StepReport


class Group(msgspec.Struct, frozen=True):
    """Figures that share a scale. `figures`: name in the learner's stats, words for it."""

    title: str
    unit: str
    note: str
    figures: tuple[tuple[str, str], ...]


GROUPS = (
    Group("Loss", "loss", "As it was minimised, once per step.", (("loss", "loss"),)),
    Group(
        "Entropy and KL",
        "nats per token",
        "Entropy of the policy, and its estimated distance from the reference where there is one.",
        (("entropy", "entropy"), ("kl", "KL to the reference")),
    ),
    Group(
        "Gradient norm",
        "norm",
        "Over all parameters, before clipping.",
        (("grad_norm", "gradient norm"),),
    ),
    Group(
        "Clipped tokens",
        "share",
        "Share of tokens whose ratio was clipped; zero where a batch is used for one update.",
        (("clip_fraction_low", "below"), ("clip_fraction_high", "above")),
    ),
    Group(
        "Ratios",
        "new / old",
        "Of each token's probability after and before the updates of a batch; 1 where a batch is"
        " used for one update.",
        (("ratio_p01", "1st percentile"), ("ratio_p50", "median"), ("ratio_p99", "99th")),
    ),
    Group(
        "Advantages",
        "standard deviation",
        "Over the tokens that were computed.",
        (("advantage_std", "deviation"),),
    ),
    Group("Value loss", "loss", "Of the critic.", (("value_loss", "value loss"),)),
    Group(
        "Repeated 4-grams",
        "share",
        "Share of those that stand earlier in the same answer, over the answers computed.",
        (("repeated_ngrams", "repeated"),),
    ),
    Group(
        "Mismatch of engine and learner",
        "nats per token",
        "Estimated KL between what the engine sampled from and what the learner computes at the"
        " same weights. It should stay near zero.",
        (("mismatch_kl", "KL(engine, learner)"),),
    ),
)


def learning(steps: Sequence[StepReport]) -> list[Section]:
    """A section for each group that has figures other than zero."""
    found = (_section(group, steps) for group in GROUPS)
    return [section for section in found if section is not None]


def _section(group: Group, steps: Sequence[StepReport]) -> Section | None:
    every = (
        Line(words, f"c{i}", _points(steps, name))
        for i, (name, words) in enumerate(group.figures, start=1)
    )
    drawn = [line for line in every if any(value for _, value in line.points)]
    if not drawn:
        return None
    described = " ".join(
        f"{line.name} from {line.points[0][1]:.4g} to {line.points[-1][1]:.4g}." for line in drawn
    )
    table = {line.name: dict(line.points) for line in drawn}
    numbers = sorted({x for line in drawn for x, _ in line.points})
    return Section(
        title=group.title,
        note=group.note,
        svg=charts.lines(Axes(group.title, described, "step", group.unit), drawn),
        legend=tuple((line.css, line.name) for line in drawn),
        columns=("step", *table),
        rows=tuple(
            (f"{x:.0f}", *(_cell(column.get(x)) for column in table.values())) for x in numbers
        ),
    )


def _points(steps: Sequence[StepReport], name: str) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(step.step), step.learner.stats[name])
        for step in steps
        if step.learner and name in step.learner.stats
    )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
