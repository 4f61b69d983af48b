"""The libraries that judge: math-verify and reasoning-gym's own scorers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide import gym
from ebbtide.rewards.outcomes import Answer, Outcome, Unusable, Worth
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.spec import RuleReward

RIGHT, WRONG, FORMLESS = Worth(1.0), Worth(0.0), Worth(0.0, fault="format")


def score(component: RuleReward, response: str, reference: Any, task: str = "t") -> Outcome:
    answer = Answer("p", response, json.dumps(reference).encode(), task)
    return judge((scorer(component),), answer)[0]


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("it is $\\frac{2}{4}$", "1/2", RIGHT),
        ("\\boxed{x + 1}", "1 + x", RIGHT),
        ("72", 72, RIGHT),
        ("73", 72, WRONG),
        ("no idea", "72", FORMLESS),
    ],
)
def test_mathematics_is_compared_by_meaning(response: str, truth: Any, expected: Outcome) -> None:
    assert score(RuleReward(type="math", name="m"), response, {"answer": truth}) == expected


def test_a_truth_that_is_no_mathematics_is_unusable() -> None:
    outcome = score(RuleReward(type="math", name="m"), "72", {"answer": "$$"})
    assert isinstance(outcome, Unusable)


GYM = RuleReward(type="reasoning_gym", name="g", extract="<answer>(.*?)</answer>", threshold=1.0)


@pytest.fixture(scope="module")
def entry() -> dict[str, Any]:
    package = gym.package()
    return dict(package.create_dataset("word_sequence_reversal", size=1, seed=1)[0])


def test_a_gym_task_is_scored_by_its_own_scorer(entry: dict[str, Any]) -> None:
    right = f"<answer>{entry['answer']}</answer>"
    assert score(GYM, right, entry) == RIGHT
    assert score(GYM, right.lower().replace(",", " ,"), entry) == WRONG
    assert score(GYM, entry["answer"], entry) == FORMLESS


def test_the_rows_task_names_the_scorer_of_entries_that_do_not(entry: dict[str, Any]) -> None:
    bare = {"answer": "a, b", "metadata": {"words": ["b", "a"]}}
    assert score(GYM, "<answer>a, b</answer>", bare, task="word_sequence_reversal") == RIGHT


def test_an_unknown_task_is_unusable() -> None:
    assert isinstance(score(GYM, "<answer>a</answer>", {"answer": "a"}, task="chess"), Unusable)
