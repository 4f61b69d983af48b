"""The calculator, users' environments, and what becomes of those that go wrong."""

from __future__ import annotations

from importlib import import_module

import pytest

from ebbtide.errors import Refused
from ebbtide.rewards.environments import LARGEST_REPLY, environment
from ebbtide.rewards.outcomes import (
    Answer,
    Broken,
    Judged,
    Message,
    Outcome,
    Reply,
    Unusable,
    Worth,
)
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.rewards.versions import environment_versions
from ebbtide.spec import EnvironmentSpec, FunctionReward
from ebbtide.testing.rollouts import a_rollout
from ebbtide.wire import Error, Invalid, Value
from services.reward import core

CALCULATOR = EnvironmentSpec(name="calculator")


def asked(spec: EnvironmentSpec, turn: str, *before: str) -> Outcome:
    said = (*before, turn)
    roles = ("assistant", "user")
    told = tuple(Message(roles[n % 2], text) for n, text in enumerate(said))
    [outcome] = judge((environment(spec),), Answer("prompt", turn, b'{"answer": 42}', "t", told))
    return outcome


def yours(name: str) -> EnvironmentSpec:
    return EnvironmentSpec(entry_point=f"ebbtide.testing.environments:{name}")


@pytest.mark.parametrize(
    ("turn", "reply"),
    [
        ("<calc>2*(3+4)</calc>", "14"),
        ("so <calc>1</calc> and <calc>-7 // 2</calc>", "-4"),
        ("<calc>1/3", "0.333333333333"),
        ("<calc>1e9*1e9</calc>", "error: not a sum of numbers"),
        ("<calc>2**9</calc>", "error: not a sum of numbers"),
        ("<calc>open('/etc/passwd')</calc>", "error: not a sum of numbers"),
        ("<calc>1/(2-2)</calc>", "error: division by zero"),
        (f"<calc>{'1+' * 200}1</calc>", "error: over 200 characters"),
        ("<calc></calc>", "error: not a sum of numbers"),
        ("42", None),
    ],
)
def test_the_calculator_does_sums_and_nothing_else(turn: str, reply: str | None) -> None:
    assert asked(CALCULATOR, turn) == Reply(reply)


def test_a_users_environment_sees_the_whole_episode_and_the_row() -> None:
    assert asked(yours("guess"), "50", "10", "higher") == Reply("lower")
    assert asked(yours("guess"), "42", "10", "higher") == Reply(None)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("raises", Unusable("ZeroDivisionError: division by zero")),
        ("outage", Broken("Temporary", "ebbtide.errors.Temporary: away")),
        ("number", Unusable("ebbtide.testing.environments:number returned int, neither text nor None")),
        ("half", Unusable("the reply is not valid text")),
        ("flood", Unusable(f"a reply of {LARGEST_REPLY + 1} characters, more than {LARGEST_REPLY}")),
    ],
)  # fmt: skip
def test_what_is_no_reply_says_whose_fault_it_is(name: str, outcome: Outcome) -> None:
    assert asked(yours(name), "?") == outcome


def test_a_reward_function_sees_the_turns_of_an_episode_if_it_has_a_place_for_them() -> None:
    told = (Message("assistant", "1"), Message("user", "more"), Message("assistant", "2"))
    answer = Answer("prompt", "2", b"{}", "t", told)
    for name, worth in (("turns", 3.0), ("obedient", 2.0)):
        component = FunctionReward(
            type="function", name="f", entry_point=f"ebbtide.testing.rewards:{name}"
        )
        assert judge((scorer(component),), answer) == (Worth(worth),)


def test_a_missing_environment_is_refused_with_its_field() -> None:
    with pytest.raises(Refused, match="cannot load") as refused:
        environment(yours("nobody"))
    assert refused.value.field == "/spec/environment/entryPoint"


def test_the_digest_of_scores_names_the_environment_and_its_settings() -> None:
    import_module("ebbtide.testing.environments")  # as whoever asks it has done
    found = environment_versions(yours("guess"))
    assert len(found["environment ebbtide.testing.environments:guess"]) == 64
    assert '"max_turns":8' in found["environment"]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Judged((Reply("x"),), (0.0,)), Reply("x")),
        (Judged((Unusable("why"),), (0.0,)), Invalid("environment: why")),
        (Judged((Broken("OSError", "disk"),), (0.0,)), Error("OSError", "environment: disk")),
        (core.TimedOut(), Value(0.0, (), fault="timeout")),
        (core.NoWorker("no memory"), Error("NoWorker", "no memory")),
    ],
)
def test_an_environments_failure_follows_the_rules_of_scores(
    verdict: core.Verdict, said: object
) -> None:
    assert core.replied(verdict) == said


def test_the_environment_is_asked_after_a_turn_that_stopped_and_has_another() -> None:
    stopped, cut = a_rollout([1]), a_rollout([1], finish="length")
    assert core.may_go_on(stopped, 2)
    assert not core.may_go_on(stopped, 1)
    assert not core.may_go_on(cut, 2)
