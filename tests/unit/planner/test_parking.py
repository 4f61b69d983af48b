"""Actors that sleep between steps, and wake for the next one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from services.planner.core.config import Deadlines, Economy
from services.planner.core.steering import Steering, straight_profile
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.test_elastic import ElasticWorld, run, wishes
from tests.unit.planner.world import World

SLOW = straight_profile("model", first=0.5, more=0.0, start=60.0, wake=2.0)


def economy(share: float) -> Economy:
    price: dict[str, float | None] = {"decode": 36.0, "learner": 2.0}
    return Economy("USD", price, "value-of-time", 0.0, parked_share=share)


def steering(*, parked: int = 2, minimum: int = 0) -> Steering:
    return Steering(
        elastic=True, minimum=minimum, maximum=4, profile=SLOW, measured=True, parked=parked
    )


def a_world(*, share: float = 0.25, parked: int = 2, minimum: int = 0) -> World:
    work = msgspec.structs.replace(NO_EVAL, prompts=4)
    config = a_config(
        steps=4,
        work=work,
        steering=steering(parked=parked, minimum=minimum),
        economy=economy(share),
    )
    return World(config, some_data(rows=8, eval_rows=0))


def costs(world: World, cause: str) -> list[tuple[float, float | None]]:
    """Seconds and cost of actors by this cause, step by step."""
    return [
        (entry.seconds, entry.cost)
        for step in sorted(world.reports)
        for entry in world.reports[step].cost.entries
        if (entry.role, entry.cause) == ("decode", cause)
    ]


def states(world: World) -> dict[str, str]:
    return {name: actor.state for name, actor in world.actors.items()}


def until_asleep(world: World) -> None:
    """Run until an actor sleeps, and shows it; updates take long."""
    run(world, update=40.0, until=lambda: "asleep" in states(world).values())
    world.one_round(learns=False)
    assert "asleep" in states(world).values()


def test_while_the_learner_works_actors_sleep_where_a_start_takes_too_long() -> None:
    world = a_world()
    run(world, update=40.0)
    assert examine(world.evidence()).faults() == {}
    assert sum(seconds for seconds, _ in costs(world, "parked")) > 40.0
    assert set(wishes(world)[:-1]) == {2}, "pods were asked for, or let go, before the end"


def test_whoever_slept_serves_again_when_the_next_step_begins() -> None:
    world = a_world()
    run(world, update=40.0)
    waits = [world.reports[step].phases.sync for step in range(2, 4)]
    assert max(waits) <= 1.0, "woken too late"
    served = {a.name for report in world.reports.values() for a in report.actors if a.samples}
    assert served == {"actor-1", "actor-2"}, "somebody new was started"


def test_sleep_is_priced_apart() -> None:
    world = a_world()
    run(world, update=40.0)
    for seconds, cost in costs(world, "parked"):
        assert cost == pytest.approx(seconds * 0.01 * 0.25)
    for seconds, cost in costs(world, "idle"):
        assert cost == pytest.approx(seconds * 0.01)


@pytest.mark.parametrize(("share", "parked"), [(1.0, 2), (0.25, 0)])
def test_nobody_sleeps_where_that_refunds_nothing_or_may_not_be(share: float, parked: int) -> None:
    world = a_world(share=share, parked=parked)
    run(world, update=40.0)
    assert costs(world, "parked") == []


def test_no_more_sleep_than_may() -> None:
    world = a_world(parked=1)
    run(world, update=40.0)
    slept = {
        actor.name
        for report in world.reports.values()
        for actor in report.actors
        if any(part.cause == "parked" for part in actor.intervals)
    }
    assert len(slept) == 1


def test_the_least_stay_awake() -> None:
    world = a_world(minimum=2)
    run(world, update=40.0)
    assert costs(world, "parked") == []


def test_an_engine_that_cannot_sleep_is_held() -> None:
    world = a_world()
    world.sleepers = False
    run(world, update=40.0)
    assert costs(world, "parked") == []
    assert examine(world.evidence()).faults() == {}


def test_a_wake_is_timed_and_learned() -> None:
    world = a_world()
    world.wake_seconds = 6.0
    run(world, update=60.0)
    decision = world.reports[3].decision
    assert decision
    assert decision.wake_seconds == pytest.approx(6.5, abs=1.0)


def test_a_planner_that_takes_over_finds_who_sleeps_and_wakes_them() -> None:
    world = a_world()
    until_asleep(world)
    world.kill_planner()
    run(world, update=40.0)
    assert examine(world.evidence()).faults() == {}
    assert set(wishes(world)[:-1]) <= {2}, "those that sleep were not seen"


def test_after_the_last_step_whoever_sleeps_is_let_go() -> None:
    world = a_world()
    run(world, update=40.0)
    for _ in range(4):
        world.operator.work()
        world.one_round()
    assert world.actors == {}


def test_in_place_of_one_that_died_asleep_another_is_started() -> None:
    world = a_world()
    until_asleep(world)
    [*_, name] = [name for name, state in states(world).items() if state == "asleep"]
    world.kill_actor(name)
    world.tell_gone(name)
    run(world, update=40.0)
    assert name not in world.actors
    assert examine(world.evidence()).faults() == {}


class ParkingWorld(ElasticWorld):
    """The same faults in a pool that sleeps as soon as it has nothing to do."""

    @initialize(minimum=st.integers(0, 1), maximum=st.integers(1, 4))
    def begin_elastic(self, minimum: int, maximum: int) -> None:
        deadlines = Deadlines(step=1000.0, score=20.0, learn=2000.0)
        profile = straight_profile("model", first=0.5, more=0.0, start=60.0, wake=0.0)
        eager = msgspec.structs.replace(steering(minimum=minimum), maximum=maximum, profile=profile)
        first = min(2, maximum)
        work = msgspec.structs.replace(a_config().work, replicas=first)
        config = a_config(work=work, deadlines=deadlines, steering=eager, economy=economy(0.0))
        self.world = World(config, some_data(), actors=first)
        self.foreign = 0
        self.hurt = False

    @precondition(lambda self: self.world.actors)
    @rule(which=st.integers(0, 10**6))
    def an_actor_sleeps_unasked(self, which: int) -> None:
        """As by a command of a planner that is gone."""
        actor = self.actor(which)
        if not (actor.running or actor.holding or actor.draining):
            actor.asleep, actor.policy = True, None

    @invariant()
    def nobody_sleeps_with_samples(self) -> None:
        for actor in self.world.actors.values() if hasattr(self, "world") else ():
            assert not (actor.asleep and actor.running)


ParkingWorld.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSleepLosesNothing = ParkingWorld.TestCase
