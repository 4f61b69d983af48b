"""Samples move at random among deaths, losses, repeats and scale-downs: every sample ends once."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from services.planner.core.config import Deadlines
from services.planner.core.effects import ScalePool
from services.planner.core.migrating import Scene
from services.planner.core.planning.migration import Move
from services.planner.core.steering import Steering, straight_profile
from tests.checker.verdict import examine
from tests.unit.planner.builders import GRPO, NO_EVAL, a_config, some_data
from tests.unit.planner.test_no_sample_is_lost import FaultyWorld, some
from tests.unit.planner.world import World

QUICK = straight_profile("model", first=0.5, more=0.0, start=2.0)


class Whim:
    """Moves anything anywhere, the source itself and nobody included."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a test must repeat

    def __call__(self, scene: Scene) -> list[Move]:
        names = [actor.name for actor in scene.actors] + ["nobody"]
        return [self._move(a.name, i, names) for a in scene.actors for i in a.samples]

    def _move(self, source: str, sample: int, names: list[str]) -> Move:
        how = self._random.choice(["kv", "kv", "recompute"])
        return Move(sample, source, self._random.choice(names), how, 0.0)  # type: ignore[arg-type]


def the_counts_add_up(world: World) -> None:
    for report in world.reports.values():
        moved = report.migration
        if moved is not None:
            assert moved.ordered == moved.moved + moved.finished + moved.failed
            assert moved.moved == moved.with_kv + moved.recomputed


class MovingWorld(FaultyWorld):
    """The same faults, while samples move by whim; tickets may last no longer than a moment."""

    @initialize(
        actors=st.integers(1, 4),
        seed=some,
        elastic=st.booleans(),
        lease=st.sampled_from([30.0, 3.0, 0.0]),
    )
    def begin_moving(self, actors: int, seed: int, elastic: bool, lease: float) -> None:
        steering = Steering(elastic=elastic, maximum=4, profile=QUICK, measured=True)
        work = msgspec.structs.replace(GRPO, max_new_tokens=12)
        deadlines = Deadlines(step=1000.0, score=20.0, learn=2000.0)
        config = a_config(work=work, deadlines=deadlines, steering=steering)
        self.world = World(config, some_data(), actors=actors, rule=Whim(seed))
        self.world.exports.lease = lease
        self.hurt = False

    def begin(self) -> None:
        """Not the other world's."""

    @rule()
    def the_operator_works(self) -> None:
        self.world.operator.work()

    @rule(which=some)
    def somebody_is_let_go(self, which: int) -> None:
        names = sorted(self.world.actors)
        if len(names) > 1:
            gone = (names[which % len(names)],)
            self.world.operator.told(ScalePool(len(names) - 1, gone))

    @invariant()
    def a_step_accounts_for_its_moves(self) -> None:
        if hasattr(self, "world"):
            the_counts_add_up(self.world)


MovingWorld.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestMovingLosesNothing = MovingWorld.TestCase


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_more_worlds() -> None:
    long = settings(MovingWorld.TestCase.settings, max_examples=1000, stateful_step_count=100)
    run_state_machine_as_test(MovingWorld, settings=long)


def test_a_storm_of_a_hundred_scale_downs_with_moves_loses_no_sample() -> None:
    work = msgspec.structs.replace(NO_EVAL, prompts=8, group_size=4, max_new_tokens=40)
    world = World(a_config(steps=6, work=work), some_data(16, 0), actors=4, rule=Whim(5))
    downs, turn = 0, 0
    while downs < 100 and not world.outcome:
        names = sorted(name for name, actor in world.actors.items() if not actor.draining)
        if turn % 2 and len(names) > 1:
            world.operator.told(ScalePool(len(names) - 1, (names[turn % len(names)],)))
            downs += 1
        elif len(names) < 4:
            world.operator.told(ScalePool(4, ()))
        world.one_round()
        turn += 1
    world.calm(rounds=3000)
    assert downs == 100
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}
    moved = sum(r.migration.moved for r in world.reports.values() if r.migration)
    assert moved >= 10, "the storm is to hit samples that move"
    assert world.exports.read > 0
    the_counts_add_up(world)
