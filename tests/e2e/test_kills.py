"""kill -9 of every role at random moments, with work in flight (architecture.md 8)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks.stack import Stack
from tests.checker.verdict import Verdict
from tests.e2e.hunt import ROLES, Hunt, Kill
from tests.e2e.jobs import Material, judged

pytestmark = [pytest.mark.e2e]
END_SECONDS = 400.0


def hunt(
    stack: Stack, material: Material, *, each: int, seed: int
) -> tuple[list[Kill], list[Verdict]]:
    """Kill `each` processes of every role in one short job after another."""
    rng = random.Random(seed)  # noqa: S311 - a test must repeat
    left = list(ROLES) * each
    rng.shuffle(left)
    kills: list[Kill] = []
    verdicts: list[Verdict] = []
    while left:
        job = stack.submit(f"hunted-{seed}-{len(verdicts)}", material.spec())
        chase = Hunt(stack, job.name, job.metadata.uid, rng)
        while left and not chase.over:
            if chase.kill(left[-1]):
                left.pop()
        ended = stack.finished(job.name, seconds=END_SECONDS)
        assert ended.state == "Complete", f"{ended.reason}: {ended.message}"
        kills += chase.kills
        verdicts.append(judged(stack, job.metadata.uid))
    return kills, verdicts


def assert_nothing_is_lost(verdicts: list[Verdict]) -> None:
    assert [verdict.faults() for verdict in verdicts if verdict.faults()] == []
    # An actor that is killed between acceptance and its log takes what it held along; most stays.
    assert all(2 * verdict.settled > verdict.accepted for verdict in verdicts)
    abandoned, expected = (sum(getattr(v, n) for v in verdicts) for n in ("abandoned", "expected"))
    assert abandoned <= 0.01 * expected


@pytest.mark.timeout(900)
def test_killing_every_role_twice_loses_and_doubles_nothing(
    stack: Stack, material: Material
) -> None:
    kills, verdicts = hunt(stack, material, each=2, seed=1)
    assert Counter(kill.role for kill in kills) == dict.fromkeys(ROLES, 2)
    assert all(kill.pending for kill in kills)
    assert_nothing_is_lost(verdicts)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_kills_lose_and_double_nothing(stack: Stack, material: Material) -> None:
    kills, verdicts = hunt(stack, material, each=17, seed=2)
    assert len(kills) >= 100
    assert min(Counter(kill.role for kill in kills).values()) >= 10
    assert_nothing_is_lost(verdicts)
