"""What a user's function may do, and what is made of it."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Broken, Outcome, Unusable, Worth
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.spec import FunctionReward

OBEDIENT = "ebbtide.testing.rewards:obedient"


def score(response: str, entry_point: str = OBEDIENT) -> Outcome:
    component = FunctionReward(type="function", name="f", entry_point=entry_point)
    return judge((scorer(component),), Answer("prompt", response, b'{"answer": 5}', "t"))[0]


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("0.5", Worth(0.5)),
        ("-2", Worth(-2.0)),
        ("prompt", Worth(6.0)),
        ("reference", Worth(5.0)),
        ("memory", Worth(0.0, fault="memory")),
        ("raise", Unusable("ZeroDivisionError: division by zero")),
        ("exit", Unusable("SystemExit: 3")),
        ("interrupt", Unusable("KeyboardInterrupt")),
        ("cancel", Unusable("asyncio.exceptions.CancelledError")),
        ("narrow", Worth(0.5)),
        ("whole", Worth(3.0)),
        ("nan", Unusable("the score is nan, not a finite number")),
        ("inf", Unusable("the score is inf, not a finite number")),
        ("text", Unusable(f"{OBEDIENT} returned str, no number")),
        ("none", Unusable(f"{OBEDIENT} returned NoneType, no number")),
        ("outage", Broken("Temporary", "ebbtide.errors.Temporary: the judge is away")),
    ],
)
def test_whatever_a_function_does_has_one_meaning(response: str, outcome: Outcome) -> None:
    assert score(response) == outcome


def test_a_missing_file_is_infrastructure() -> None:
    outcome = score("file")
    assert isinstance(outcome, Broken)
    assert outcome.error_class == "FileNotFoundError"


def test_an_exception_without_words_is_still_the_verifiers() -> None:
    assert isinstance(score("", "ebbtide.testing.rewards:unspeakable"), Unusable)


def test_an_exception_that_no_message_can_carry_is_told_all_the_same() -> None:
    outcome = score("surrogate")
    assert outcome == Unusable(r"ValueError: \ud800")
    assert msgspec.msgpack.encode(outcome)


def test_a_reference_that_one_function_changed_is_whole_to_the_next() -> None:
    names = ("greedy", "looks")
    scorers = tuple(
        scorer(
            FunctionReward(
                type="function", name=name, entry_point=f"ebbtide.testing.rewards:{name}"
            )
        )
        for name in names
    )
    outcomes = judge(scorers, Answer("prompt", "1", b'{"answer": [5]}', "t"))
    assert outcomes == (Worth(1.0), Worth(1.0))


def test_a_reference_nested_too_deeply_is_unusable() -> None:
    component = FunctionReward(type="function", name="f", entry_point=OBEDIENT)
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    [outcome] = judge((scorer(component),), Answer("prompt", "1", deep, "t"))
    assert isinstance(outcome, Unusable)


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("no_such_module:f", "cannot load no_such_module:f: ModuleNotFoundError"),
        ("tests.unit.reward.interrupted:f", "cannot load .*CancelledError"),
        ("ebbtide.testing.rewards:nothing", "cannot load .*nothing"),
        ("ebbtide.testing.rewards:os", "is not a function"),
    ],
)
def test_a_function_that_cannot_be_had_is_refused(entry_point: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        score("1", entry_point)
