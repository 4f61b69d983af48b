"""kill -9 of every role at random moments, with work in flight (architecture.md 8)."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.stack import Stack
from tests.e2e.hunt import MOVERS, ROLES, assert_nothing_is_lost, hunt
from tests.e2e.jobs import Material, Spec, training
from tests.e2e.tiny import write_model

pytestmark = [pytest.mark.e2e]
MOVING_ROLES = ("prefill", *MOVERS)
LAYERS = 40
"""So many that an answer takes seconds on any machine: who moves is asked once a second."""


@pytest.fixture(scope="module")
def moving(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """Prompts are computed by the service, and what is left of an actor goes on with others."""
    folder = tmp_path_factory.mktemp("long") / "model"
    model = write_model(folder, more=110, layers=LAYERS)
    return Material(model, material.prompts).spec(
        training=training(totalSteps=8, maxResponseTokens=160),
        decode={"engine": "torch", "replicas": 3, "device": "cpu"},
        prefill={"mode": "service", "device": "cpu"},
        planner={"migration": "tau", "tau": 0.4},
        learner={"ranks": 1, "device": "cpu"},
    )


@pytest.mark.timeout(900)
def test_killing_every_role_twice_loses_and_doubles_nothing(
    stack: Stack, material: Material
) -> None:
    kills, verdicts = hunt(stack, material.spec(), ROLES, each=2, seed=1)
    assert Counter(kill.role for kill in kills) == dict.fromkeys(ROLES, 2)
    assert all(kill.pending for kill in kills)
    assert_nothing_is_lost(verdicts)


@pytest.mark.timeout(900)
def test_killing_who_computes_prompts_and_who_moves_samples_loses_and_doubles_nothing(
    stack: Stack, moving: Spec
) -> None:
    kills, verdicts = hunt(stack, moving, MOVING_ROLES, each=1, seed=3)
    assert Counter(kill.role for kill in kills) == dict.fromkeys(MOVING_ROLES, 1)
    assert_nothing_is_lost(verdicts)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_kills_lose_and_double_nothing(stack: Stack, material: Material) -> None:
    kills, verdicts = hunt(stack, material.spec(), ROLES, each=17, seed=2)
    assert len(kills) >= 100
    assert min(Counter(kill.role for kill in kills).values()) >= 10
    assert_nothing_is_lost(verdicts)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thirty_kills_around_moving_samples_lose_and_double_nothing(
    stack: Stack, moving: Spec
) -> None:
    kills, verdicts = hunt(stack, moving, MOVING_ROLES, each=10, seed=4)
    assert min(Counter(kill.role for kill in kills).values()) >= 10
    assert_nothing_is_lost(verdicts)
