"""Which tests a row has, and what their results are worth."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.rewards import code
from ebbtide.rewards.outcomes import Answer, Outcome, Unusable, Worth
from ebbtide.sandbox.cell import Cell, interpreter
from ebbtide.sandbox.trial import Asserts, Prints
from ebbtide.spec import CodeReward

TWO = {"stdin": "1", "stdout": "2"}


@pytest.mark.parametrize(
    ("value", "tests"),
    [
        ("assert f(1)", (Asserts("assert f(1)"),)),
        (TWO, (Prints("1", "2"),)),
        (["assert f(1)", TWO], (Asserts("assert f(1)"), Prints("1", "2"))),
        (["assert (f"], Unusable("test 0 of the reference: it does not compile: ")),
        ([TWO, 3], Unusable("test 1 of the reference: it is neither Python code nor")),
        (None, Unusable("test 0 of the reference: it is neither Python code nor")),
        ([], Unusable("the reference has no test")),
    ],
)
def test_tests_come_in_two_forms(value: Any, tests: Any) -> None:
    found = code.read(value)
    if isinstance(tests, Unusable):
        assert isinstance(found, Unusable)
        assert found.why.startswith(tests.why)
    else:
        assert found == tests


def score(response: str, **changes: Any) -> Outcome:
    component = CodeReward(type="code", name="c", **changes)
    tests = {"tests": [TWO, {"stdin": "2", "stdout": "5"}]}
    return code.code(component, Cell(interpreter()))(Answer("", response, b"", ""), tests)


def test_an_answer_without_a_program_has_no_form() -> None:
    assert score("print(2)") == Worth(0.0, fault="format")


def test_all_tests_count_or_their_share() -> None:
    answer = "First:\n```python\n1/0\n```\nNo:\n```python\nprint(int(input()) * 2)\n```"
    assert score(answer) == Worth(0.0)
    assert score(answer, score="share") == Worth(0.5)
    assert score("print(int(input()) * 2)", extract=None, score="share") == Worth(0.5)
