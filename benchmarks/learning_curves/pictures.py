"""One picture per algorithm, as SVG files that a page of the documentation shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ebbtide.report.charts import Axes, Line, lines

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "curves"
_SEEDS = ("#2a6f97", "#c05621", "#4c7a34")
_STYLE = (
    "<style>svg{background:#fff;font:12px sans-serif}.grid{stroke:#ddd}.line{fill:none;"
    "stroke-width:2}text{fill:#444}"
    + "".join(f".s{i}{{stroke:{c}}}.mark.s{i}{{fill:{c}}}" for i, c in enumerate(_SEEDS))
    + "</style>"
)


def draw(curves: Mapping[str, Sequence[Sequence[float]]], folder: Path = FOLDER) -> None:
    """Write a picture of each algorithm's runs, one line per seed, into `folder`."""
    folder.mkdir(exist_ok=True)
    for name, runs in curves.items():
        (folder / f"{name}.svg").write_text(picture(name, runs))


def picture(name: str, runs: Sequence[Sequence[float]]) -> str:
    """Mean reward of each step, one line per seed, as an SVG document."""
    axes = Axes(name, f"Mean reward of each step, {len(runs)} seeds.", "step", "reward")
    drawn = [
        Line(f"seed {i}", f"s{i}", tuple((float(x), y) for x, y in enumerate(run)))
        for i, run in enumerate(runs)
    ]
    head, rest = lines(axes, drawn).split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{_STYLE}{rest}\n'
