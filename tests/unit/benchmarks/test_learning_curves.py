"""The parts of the learning curves that need no model."""

from __future__ import annotations

from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import pytest

from benchmarks.learning_curves import task
from benchmarks.learning_curves.pictures import draw
from benchmarks.learning_curves.runs import ALGORITHMS, gain_of, spec_of


@pytest.mark.parametrize(
    ("answer", "reward"),
    [([5, 4, 3, task.STOP], 1.0), ([5, 4, 9, task.STOP], 0.75), ([task.STOP], 0.0), ([5], 0.25)],
)
def test_an_answer_is_worth_its_share_of_right_places(answer: list[int], reward: float) -> None:
    assert task.reward([3, 4, 5, task.ASK], answer) == reward


def test_every_prompt_can_be_answered_within_the_limit() -> None:
    drawn = task.prompts(Random(0), 50)  # noqa: S311
    assert {len(prompt) - 1 for prompt in drawn} == set(range(task.SHORTEST, task.LONGEST + 1))
    assert all(len(prompt) < task.LIMIT for prompt in drawn)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_a_job(name: str, tmp_path: Path) -> None:
    assert spec_of(ALGORITHMS[name], tmp_path, seed=0, steps=3).training.total_steps == 3


def test_the_gain_is_that_of_the_edges() -> None:
    assert gain_of([0.25] * 5 + [9.0] * 3 + [0.75] * 5) == 0.5


def test_a_picture_has_a_line_for_each_seed(tmp_path: Path) -> None:
    draw({"grpo": [[0.1, 0.2], [0.2, 0.4]]}, tmp_path)
    tree = ET.parse(tmp_path / "grpo.svg")  # noqa: S314 - our own file
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}polyline")) == 2
