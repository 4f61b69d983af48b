"""What the page of the learning curves says of the runs that it has."""

from __future__ import annotations

from benchmarks.learning_curves import ALGORITHMS
from benchmarks.learning_curves.page import Curve, page, picture


def curve(algorithm: str, seed: int, first: float, last: float) -> Curve:
    """A run of two steps."""
    return Curve(algorithm, seed, held_out=((0, first), (2, last)), reward=((0, first),))


def full() -> dict[str, list[Curve]]:
    """Two runs of each algorithm."""
    return {name: [curve(name, 0, 0.25, 0.5), curve(name, 1, 0.25, 0.75)] for name in ALGORITHMS}


def test_a_row_has_means_the_deviation_over_seeds_and_each_gain() -> None:
    assert "| RLOO | 0.250 | 0.625 ± 0.177 | +0.250, +0.500 |" in page(full(), ALGORITHMS)


def test_the_page_names_runs_that_are_missing() -> None:
    runs = full()
    runs["PPO"].pop()
    assert "Not run yet: PPO seed 1." in page(runs, ALGORITHMS)


def test_a_whole_page_names_none() -> None:
    assert "Not run yet" not in page(full(), ALGORITHMS)


def test_a_picture_has_a_panel_for_each_algorithm_with_a_line_for_each_seed_and_their_mean() -> (
    None
):
    drawn = picture(full())
    assert drawn.count('class="head"') == len(ALGORITHMS)
    assert drawn.count('class="line run"') + drawn.count('class="line mean"') == len(ALGORITHMS) * 3
