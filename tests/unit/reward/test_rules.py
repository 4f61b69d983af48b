"""The built-in rules, one table each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide.rewards.outcomes import Answer, Outcome, Unusable, Worth
from ebbtide.rewards.rules import last_number
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.spec import RuleReward

RIGHT, WRONG, FORMLESS = Worth(1.0), Worth(0.0), Worth(0.0, fault="format")


def score(component: dict[str, Any], response: str, reference: Any) -> Outcome:
    rule = scorer(RuleReward(name="r", **component))
    answer = Answer("p", response, json.dumps(reference).encode(), "t")
    return judge((rule,), answer)[0]


@pytest.mark.parametrize(
    ("response", "reference", "expected"),
    [
        (" 4 \n", "4", RIGHT),
        ("4", 4, RIGHT),
        ("4.0", 4, WRONG),
        ("", "", RIGHT),
    ],
)
def test_exact_compares_texts(response: str, reference: Any, expected: Outcome) -> None:
    assert score({"type": "exact"}, response, {"answer": reference}) == expected


@pytest.mark.parametrize(
    ("response", "reference", "expected"),
    [
        ("so it is 1,234.50.", 1234.5, RIGHT),
        ("x = -3", "#### -3", RIGHT),
        ("9 - 4 = 5", 5, RIGHT),
        ("6e3", 6000, RIGHT),
        ("5", 6, WRONG),
        ("many", 5, FORMLESS),
        ("1e999", 5, FORMLESS),
    ],
)
def test_numeric_compares_the_last_numbers(
    response: str, reference: Any, expected: Outcome
) -> None:
    assert score({"type": "numeric"}, response, {"answer": reference}) == expected


def test_the_tolerance_is_absolute_and_inclusive() -> None:
    near = {"type": "numeric", "tolerance": 0.5}
    assert score(near, "10.5", {"answer": 10}) == RIGHT
    assert score(near, "10.6", {"answer": 10}) == WRONG


@pytest.mark.parametrize(("text", "number"), [("5-3", 3), ("a-7", 7), (".5", 0.5), ("3.", 3)])
def test_a_minus_between_things_is_an_operation(text: str, number: float) -> None:
    assert last_number(text) == number


def test_regex_searches_the_answer() -> None:
    component = {"type": "regex", "pattern": r"^<a>.*</a>$"}
    assert score(component, "<a>1\n2</a>", {}) == RIGHT
    assert score(component, "x<a>1</a>", {}) == WRONG


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<answer>1</answer> no: <answer> 4 </answer>", RIGHT),
        ("<answer>4</answer> no: <answer>1</answer>", WRONG),
        ("4", FORMLESS),
    ],
)
def test_the_last_extract_counts(response: str, expected: Outcome) -> None:
    component = {"type": "exact", "extract": "<answer>(.*?)</answer>"}
    assert score(component, response, {"answer": "4"}) == expected


def test_another_field_may_hold_the_answer() -> None:
    assert score({"type": "exact", "answer_field": "truth"}, "4", {"truth": "4"}) == RIGHT


@pytest.mark.parametrize(
    ("kind", "reference", "why"),
    [
        ("exact", {}, "the reference has no answer in 'answer'; it has nothing"),
        ("exact", {"answer": None}, "it has answer"),
        ("exact", {"answer": [1]}, "it has answer"),
        ("numeric", {"answer": "many"}, "'many' is not a number"),
        ("exact", [], "not a JSON object"),
    ],
)
def test_a_reference_that_cannot_be_used_is_not_the_answers_fault(
    kind: str, reference: Any, why: str
) -> None:
    outcome = score({"type": kind}, "4", reference)
    assert isinstance(outcome, Unusable)
    assert why in outcome.why
