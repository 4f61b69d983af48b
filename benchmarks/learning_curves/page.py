"""The page of the learning curves: a picture with a panel for each algorithm, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import msgspec

from benchmarks.stack import ROOT
from ebbtide.report import charts

PAGE, PICTURE, FIGURES = (
    ROOT / "docs" / name
    for name in ("learning-curves.md", "learning-curves.svg", "learning-curves.json")
)
COLUMNS, PAD, HEAD = 2, 8, 30
STYLE = """
text { font: 13px sans-serif; fill: #57606a; } .head { font-size: 17px; fill: #24292f; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.line { fill: none; stroke-width: 1.2; stroke: #8aa4c8; } circle.mark { fill: #8aa4c8; r: 1.5px; }
.line.mean { stroke: #0969da; stroke-width: 3; } .top { display: none; } circle.mark.mean { fill: #0969da; r: 3.5px; }
"""

Points = tuple[tuple[int, float], ...]


class Curve(msgspec.Struct, frozen=True):
    """One run: (step, mean reward) of the held-out prompts, and of the training samples."""

    algorithm: str
    seed: int
    held_out: Points
    reward: Points

    @property
    def first(self) -> float:
        """Held-out reward of the initial policy."""
        return self.held_out[0][1]

    @property
    def last(self) -> float:
        """Held-out reward of the last policy."""
        return self.held_out[-1][1]

    @property
    def gain(self) -> float:
        """What the run came to."""
        return self.last - self.first


def write(curves: Sequence[Curve], settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page, its picture and its figures into docs."""
    by_name = {name: [c for c in curves if c.algorithm == name] for name in settings}
    PICTURE.write_text(picture(by_name), encoding="utf-8")
    PAGE.write_text(page(by_name, settings), encoding="utf-8")
    FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(curves), indent=0) + b"\n")


def picture(by_name: Mapping[str, Sequence[Curve]]) -> str:
    """Small multiples: each run's held-out reward, and their mean."""
    width, height = charts.WIDTH + PAD, charts.HEIGHT + HEAD + PAD
    rows = -(-len(by_name) // COLUMNS)
    top_reward = max(y for curves in by_name.values() for c in curves for _, y in c.held_out)
    parts = []
    for place, (name, curves) in enumerate(by_name.items()):
        left, top = (place % COLUMNS) * width, (place // COLUMNS) * height
        parts.append(f'<text class="head" x="{left + 52}" y="{top + 22}">{name}</text>')
        size = f'x="{left}" y="{top + HEAD}" width="{charts.WIDTH}" height="{charts.HEIGHT}"'
        parts.append(panel(name, curves, top_reward).replace("<svg ", f"<svg {size} ", 1))
    box = f"0 0 {COLUMNS * width} {rows * height}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">'
        f"<title>Held-out reward by step</title><style>{STYLE}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def panel(name: str, curves: Sequence[Curve], highest: float) -> str:
    """One algorithm's runs, on a scale up to `highest` by a line that is not shown."""
    axes = charts.Axes(name, f"Held-out reward of {name} by step", "step", "held-out reward")
    scale = charts.Line("scale", "top", ((0.0, highest),))
    drawn = [charts.Line(f"seed {c.seed}", "run", _floats(c.held_out)) for c in curves]
    return charts.lines(axes, [*drawn, charts.Line("mean", "mean", mean_of(curves)), scale])


def mean_of(curves: Sequence[Curve]) -> tuple[tuple[float, float], ...]:
    """Over the seeds, at each step."""
    together = zip(*(c.held_out for c in curves), strict=True)
    return tuple((float(at[0][0]), fmean(y for _, y in at)) for at in together)


def _floats(points: Points) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), y) for x, y in points)


def page(by_name: Mapping[str, Sequence[Curve]], settings: Mapping[str, Mapping[str, Any]]) -> str:
    """The page as Markdown."""
    lines = [_row(name, curves, settings[name]) for name, curves in by_name.items() if curves]
    [steps, *_] = {c.held_out[-1][0] for curves in by_name.values() for c in curves}
    return TEXT.format(
        steps=steps,
        rows="\n".join(lines),
        missing=_missing(by_name),
        picture=PICTURE.name,
        data=FIGURES.name,
    )


def _missing(by_name: Mapping[str, Sequence[Curve]]) -> str:
    """Which runs the page is without: those of a seed that another algorithm has."""
    seeds = {c.seed for curves in by_name.values() for c in curves}
    lacking = {name: seeds - {c.seed for c in curves} for name, curves in by_name.items()}
    named = [f"{name} seed {seed}" for name, lack in lacking.items() for seed in sorted(lack)]
    return f"Not run yet: {', '.join(named)}.\n\n" if named else ""


def _row(name: str, curves: Sequence[Curve], algorithm: Mapping[str, Any]) -> str:
    lasts = [c.last for c in curves]
    beside = f" ± {stdev(lasts):.3f}" if len(lasts) > 1 else ""
    told = msgspec.json.encode(algorithm).decode()
    gains = ", ".join(f"{c.gain:+.3f}" for c in curves)
    return (
        f"| {name} | {fmean(c.first for c in curves):.3f} | {fmean(lasts):.3f}{beside}"
        f" | {gains} | `{told}` |"
    )


TEXT = """# Learning curves

Each algorithm on the demonstration's task (`deploy/examples/demo.yaml`: reversing the order of words, a model of 0.3 million
parameters after its warm start), three seeds each, {steps} steps of 32 prompts with 8 answers, two mini-batches a step and one
learning rate (3e-4) for all. Seeds differ in the prompts' order and the sampling; the model at the start is one. Nothing was tuned
by algorithm: what is not in the last column is the default. Held-out reward is the mean over 256 prompts with two answers each at temperature 1 (its standard error is about 0.02), before the first update and after
every second step. `make bench NAME=learning_curves` runs what is missing under `runs/learning-curves` and writes this page.

![Held-out reward by step: one panel for each algorithm, thin lines are seeds, the thick line is their mean]({picture})

| algorithm | held-out reward at first | at last, mean ± deviation of seeds | gain by seed | `algorithm` |
| --- | --- | --- | --- | --- |
{rows}

{missing}What it shows: that each loss, with its advantages and clips, teaches in the running platform. What it does not: which algorithm is
better. A few short runs of a small model on an easy task with one learning rate say nothing about that.
Figures of every step are in [{data}]({data}).
"""
