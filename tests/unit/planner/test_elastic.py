"""The pool follows what pays: decided per step, let go early, asked for in time, never lost."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from ebbtide.wire import Accepted, Committed, Decided, Dispatched, unpack_ints
from services.planner.core.config import Deadlines
from services.planner.core.effects import ScalePool
from services.planner.core.steering import Steering, straight_profile
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.scorers import ModelScorer
from tests.unit.planner.test_episodes import EPISODES
from tests.unit.planner.test_no_sample_is_lost import FaultyWorld
from tests.unit.planner.world import World

LEARN_SECONDS = 30.0
QUICK = straight_profile("model", first=0.5, more=0.0, start=2.0)


def elastic(*, minimum: int = 0, maximum: int = 4) -> Steering:
    return Steering(elastic=True, minimum=minimum, maximum=maximum, profile=QUICK, measured=True)


def a_world(*, steps: int = 4, steering: Steering | None = None) -> World:
    work = msgspec.structs.replace(NO_EVAL, prompts=4)
    config = a_config(steps=steps, work=work, steering=steering or elastic())
    return World(config, some_data(rows=8, eval_rows=0))


def run(
    world: World,
    *,
    update: float = LEARN_SECONDS,
    rounds: int = 4000,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Until the end, or what is waited for; every update takes so many seconds."""
    since = world.now
    for _ in range(rounds):
        if world.outcome or until():
            return
        learning = world.seat.planner.standing().phase == "learn"
        since = since if learning else world.now
        world.one_round(learns=not learning or world.now - since >= update)
    raise AssertionError(world.seat.planner.standing())


def accepted_of(world: World, step: int) -> list[Accepted]:
    """In the order of their samples."""
    records = [r for r in world.records if isinstance(r, Accepted) and r.key.step_issued == step]
    return sorted(records, key=lambda record: record.key)


def decisions(world: World) -> list[Decided]:
    return [record for record in world.records if isinstance(record, Decided)]


def wishes(world: World) -> list[int]:
    return [wish.replicas for wish in world.operator.wishes]


def test_while_the_learner_works_for_long_nobody_is_held_and_all_are_back_in_time() -> None:
    world = a_world()
    run(world)
    assert examine(world.evidence()).faults() == {}
    found = wishes(world)
    assert 0 in found[:-1]
    assert max(found[found.index(0) :]) >= 1
    waits = [world.reports[step].phases.sync for step in range(2, 4)]
    assert max(waits) <= 1.0, "asked for before the policy was published"


def test_the_least_are_kept_though_nothing_is_to_do() -> None:
    world = a_world(steering=elastic(minimum=1))
    run(world)
    assert min(wishes(world)) == 1


def test_a_pool_that_is_not_the_planners_is_left_alone() -> None:
    world = a_world(steering=Steering(profile=QUICK))
    run(world)
    assert wishes(world) == []


def test_a_short_update_is_waited_for() -> None:
    world = a_world()
    run(world, update=2.0)
    assert 0 not in wishes(world)[:-2], "all were let go between two quick steps"


def test_the_first_step_holds_the_pool_and_says_why() -> None:
    world = a_world(steps=2)
    run(world)
    first, second = (world.reports[step].decision for step in (0, 1))
    assert first
    assert second
    assert (first.rule, first.actors, first.candidates) == ("held", 2, ())
    assert "no answer has been seen yet" in first.reason
    assert second.rule in ("chosen", "kept")
    assert second.calibration is not None
    assert second.predicted_decode_seconds is not None
    assert sum(one.chosen for one in second.candidates) == 1


def test_what_came_of_a_decision_stands_beside_what_was_predicted() -> None:
    world = a_world(steps=3)
    run(world)
    report = world.reports[2]
    found = report.decision
    assert found
    assert found.realised_decode_seconds == report.phases.decode > 0
    assert found.realised_step_seconds == report.seconds
    assert found.predicted_step_seconds is not None
    assert found.predicted_decode_seconds is not None
    assert found.predicted_step_seconds > found.predicted_decode_seconds + LEARN_SECONDS / 2
    assert 0 < found.realised_busy_seconds <= found.realised_held_seconds
    assert [point.realised for point in found.lengths] == [
        record.n_tokens for record in accepted_of(world, 2)
    ]


def test_each_share_is_decoded_by_one_actor_where_there_is_room() -> None:
    world = a_world(steering=Steering(profile=QUICK))
    world.slots = 64
    run(world)
    holders: dict[tuple[int, int], set[str]] = {}
    share_of: list[int] = []
    for record in world.records:
        if isinstance(record, Decided):
            share_of = unpack_ints(record.share_of).tolist()
        elif isinstance(record, Dispatched):
            key = record.key
            share = share_of[2 * key.group + key.index]
            holders.setdefault((key.step_issued, share), set()).add(record.actor)
    assert len(holders) == 2 * 4
    assert {len(actors) for actors in holders.values()} == {1}


def test_a_planner_that_takes_over_follows_the_recorded_decision() -> None:
    world = a_world()
    while sum(isinstance(r, Committed) for r in world.records) < 2:
        world.one_round()
    while not isinstance(world.records[-1], Decided):
        world.one_round() if not world.seat.todo else world.perform(world.seat, 1)
    decided = decisions(world)
    world.kill_planner()
    step = world.seat.planner.book.open
    assert step is not None
    assert step.decided == decided[-1]
    run(world)
    assert [r.step for r in decisions(world)].count(decided[-1].step) == 1


class Silent(ModelScorer):
    """Its environments think for ever."""

    def work(self, count: int = 0) -> None:
        super().work(0)


def test_nobody_goes_while_an_environment_may_still_ask_for_a_turn() -> None:
    world = World(a_config(steps=1, work=EPISODES, steering=elastic()), some_data(eval_rows=0))
    world.scorer = Silent(world)
    run(world, until=lambda: len(accepted_of(world, 0)) == 4)
    for _ in range(10):
        world.one_round()
    assert (len(world.actors), set(wishes(world))) == (2, {2})


@pytest.mark.parametrize("kill", [False, True])
def test_actors_are_asked_for_again_where_the_wish_was_lost(*, kill: bool) -> None:
    world = a_world()
    run(world, until=lambda: 0 in wishes(world) and not world.actors)
    world.operator.loses = 10**6
    decided = len(decisions(world))
    run(world, until=lambda: len(decisions(world)) > decided)
    world.operator.loses = 0
    if kill:
        world.kill_planner()
    run(world)
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert max(report.seconds for report in world.reports.values()) < 200


class ElasticWorld(FaultyWorld):
    """The same faults, while the planner, and somebody else, scale the pool as they like."""

    @initialize(minimum=st.integers(0, 1), maximum=st.integers(1, 4))
    def begin_elastic(self, minimum: int, maximum: int) -> None:
        deadlines = Deadlines(step=1000.0, score=20.0, learn=2000.0)
        steering = elastic(minimum=minimum, maximum=maximum)
        first = min(2, maximum)
        work = msgspec.structs.replace(a_config().work, replicas=first)
        config = a_config(work=work, deadlines=deadlines, steering=steering)
        self.world = World(config, some_data(), actors=first)
        self.foreign = 0
        self.hurt = False

    def begin(self) -> None:
        """Not the other world's."""

    @rule()
    def a_wish_is_lost(self) -> None:
        self.world.operator.loses += 1

    @rule()
    def the_operator_works(self) -> None:
        self.world.operator.work()

    @rule(replicas=st.integers(0, 4), gone=st.sets(st.integers(0, 3), max_size=3))
    def somebody_scales(self, replicas: int, gone: set[int]) -> None:
        names = sorted(self.world.actors)
        going = tuple(names[n] for n in gone if n < len(names))
        self.world.operator.told(ScalePool(max(replicas, 1), going))
        self.foreign += 1

    @invariant()
    def the_pool_keeps_its_bounds(self) -> None:
        if hasattr(self, "world") and not self.foreign:
            steering = self.world.config.steering
            for wish in self.world.operator.wishes:
                assert steering.minimum <= wish.replicas <= steering.maximum


ElasticWorld.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestScalingLosesNothing = ElasticWorld.TestCase


@pytest.mark.parametrize("prediction", ["blend", "ewma", "none"])
@pytest.mark.parametrize("assignment", ["unequal", "equal-count", "lpt", "round-robin", "top-k"])
def test_every_rule_and_predictor_brings_a_job_to_its_end(prediction: str, assignment: str) -> None:
    steering = msgspec.structs.replace(elastic(), prediction=prediction, assignment=assignment)
    world = a_world(steps=3, steering=steering)
    run(world)
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}
