"""What actors, scorers and the prefill service cost before they are first heard."""

from __future__ import annotations

import pytest

from ebbtide.wire import Spent
from services.planner.core.events import PodStarted
from tests.unit.planner.builders import a_config, some_data
from tests.unit.planner.test_job import startup_of
from tests.unit.planner.world import World


def test_the_start_of_an_actor_is_accounted_for_by_the_planner_that_saw_it() -> None:
    world = World(a_config(), some_data(), actors=0)
    world.feed(world.seat, PodStarted("decode", "late", world.now))
    world.tick(4.0)
    world.start_actor("late")
    world.calm()
    assert startup_of(world)["decode"] == 4.5


@pytest.mark.parametrize(("since", "seconds"), [(-5.0, 0.0), (0.0, 4.0)])
def test_an_actor_that_never_comes_costs_until_it_is_gone_and_old_ones_are_known(
    since: float, seconds: float
) -> None:
    world = World(a_config(), some_data())
    world.kill_planner()  # its successor knows nothing of earlier starts
    world.feed(world.seat, PodStarted("decode", "stillborn", since))
    world.tick(4.0)
    world.tell_gone("stillborn")
    world.calm()
    assert startup_of(world).get("decode", 0.0) == seconds


def test_a_scorers_time_is_explained_from_its_start_on_as_the_planners_is() -> None:
    world = World(a_config(), some_data())
    for role, pod in (("planner", "planner"), ("reward", "scorer")):
        world.feed(world.seat, PodStarted(role, pod, -7.0))
    world.calm()
    spent = [r for r in world.records if isinstance(r, Spent)]
    whole = {
        role: sum(r.seconds for r in spent if r.role == role) for role in ("planner", "reward")
    }
    assert whole["reward"] == pytest.approx(whole["planner"])
    assert startup_of(world)["reward"] == 7.5


@pytest.mark.parametrize("role", ["reward", "prefill"])
def test_a_service_that_never_comes_costs_its_start_until_it_is_gone(role: str) -> None:
    world = World(a_config(), some_data())
    world.feed(world.seat, PodStarted(role, "stillborn", world.now))
    world.tick(4.0)
    world.tell_gone("stillborn")
    world.calm()
    assert startup_of(world)[role] == 4.0


def test_a_scorer_that_an_earlier_planner_heard_does_not_start_up_again() -> None:
    world = World(a_config(), some_data())
    world.kill_planner()
    world.feed(world.seat, PodStarted("reward", "scorer", -7.0))
    world.calm()
    assert "reward" not in startup_of(world)
