"""Which rule is asked, what it is shown, and when it may empty an actor."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.jobs import a_spec
from services.planner.core.migrating import Scene, benefit, pause, rule_of
from services.planner.core.places import Places
from services.planner.core.planning.migration import Move, Working, Worth
from services.planner.core.planning.profile import make_profile
from services.planner.core.prediction.forecast import LEVELS, Forecast
from services.planner.core.steering import Steering, steer, straight_profile
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.test_elastic import LEARN_SECONDS, run
from tests.unit.planner.world import World

QUICK = straight_profile("model", first=0.5, more=0.0, start=2.0)


def working(name: str, samples: int, first: int, *, stays: bool = False) -> Working:
    return Working(name, 32, 8, tuple(range(first, first + samples)), (10,) * samples, stays)


def scene(*actors: Working, spare: int = 4, places: Places | None = None) -> Scene:
    samples = sum(len(actor.samples) for actor in actors)
    rest = Forecast(np.full((samples, len(LEVELS)), 100.0, np.float32))
    return Scene(
        actors=actors,
        profile=make_profile(QUICK),
        total=64,
        spare=spare,
        worth=Worth(actor=1.0, step=2.0, margin=1.0),
        rest=lambda: rest,
        far=(places or Places()).seconds,
    )


def sources(moves: list[Move]) -> list[str]:
    return sorted({move.source for move in moves})


def test_actors_are_emptied_where_they_can_be_let_go() -> None:
    moves = benefit(scene(working("a", 2, 0), working("b", 2, 2), working("c", 2, 4)))
    assert len(sources(moves)) == 2
    assert all(move.gain > 1.0 for move in moves)


def test_no_more_are_emptied_than_can_be_let_go() -> None:
    moves = benefit(scene(working("a", 2, 0), working("b", 2, 2), working("c", 2, 4), spare=1))
    assert len(sources(moves)) == 1


def test_nothing_moves_where_nobody_can_be_let_go_and_the_end_stays() -> None:
    assert benefit(scene(working("a", 2, 0), working("b", 2, 2), spare=0)) == []


def test_an_actor_that_moved_samples_lately_gives_none_up() -> None:
    moves = benefit(scene(working("a", 2, 0, stays=True), working("b", 2, 2)))
    assert sources(moves) == ["b"]


def test_the_nearest_of_equal_targets_is_taken() -> None:
    places = Places()
    for name, node in (("a", "one"), ("b", "two"), ("c", "one")):
        places.put("decode", name, {"kubernetes.io/hostname": node})
    few, more = working("a", 1, 0), [working(name, 4, i) for name, i in (("b", 1), ("c", 5))]
    moves = benefit(scene(few, *more, spare=1, places=places))
    assert [(move.source, move.target) for move in moves] == [("a", "c")]


def test_the_heaviest_share_goes_nearest_to_the_learner() -> None:
    places = Places()
    places.put("learner", "0", {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n"})
    places.put("learner", "1", {"kubernetes.io/hostname": "elsewhere"})
    places.put("decode", "a", {"topology.kubernetes.io/zone": "y"})
    places.put("decode", "b", {"topology.kubernetes.io/zone": "z"})
    places.put("decode", "c", {"kubernetes.io/hostname": "n"})
    assert places.nearest_first(["a", "b", "c", "d"]) == ["c", "b", "a", "d"]


def test_on_one_machine_names_decide() -> None:
    assert Places().nearest_first(["b", "a"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("scaling", "migration", "rule"),
    [
        ("elastic", None, "benefit"),
        ("static", None, "none"),
        ("static", "tau", "tau"),
        ("elastic", "none", "none"),
    ],
)
def test_benefit_is_the_rule_of_an_elastic_pool(
    scaling: str, migration: str | None, rule: str
) -> None:
    document = a_spec(planner={"scaling": scaling, "migration": migration})
    spec = RLHFJobSpec.model_validate(document, strict=False)
    assert steer(spec, None).migration == rule


@pytest.mark.parametrize("seconds", [1.0, 2.0, 4.0, 8.0])
def test_a_step_is_looked_at_five_times_in_its_last_half_or_once_a_second(seconds: float) -> None:
    looks, now = 0, seconds / 2
    while now < seconds:
        now += pause(now)
        looks += 1
    assert looks >= min(5, seconds / 2)


def test_a_long_step_is_looked_at_once_a_second() -> None:
    assert pause(600.0) == 1.0


def test_without_a_rule_nothing_is_asked() -> None:
    assert rule_of(Steering(migration="none")) is None


@pytest.mark.parametrize("migration", ["benefit", "tau", "global-cut"])
def test_each_rule_brings_an_elastic_job_to_its_end(migration: str) -> None:
    work = msgspec.structs.replace(NO_EVAL, prompts=8, group_size=4, max_new_tokens=60)
    steering = Steering(elastic=True, maximum=4, profile=QUICK, measured=True, migration=migration)
    world = World(a_config(steps=4, work=work, steering=steering), some_data(16, 0))
    world.slots = 64
    run(world, update=LEARN_SECONDS)
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}
    found = [report.migration for report in world.reports.values()]
    assert all(report is not None and report.rule == migration for report in found)


def test_an_actor_that_ran_low_is_emptied_and_let_go_inside_the_step() -> None:
    work = msgspec.structs.replace(NO_EVAL, prompts=8, group_size=4, max_new_tokens=60)
    profile = straight_profile("model", first=0.3, more=0.02, start=2.0)
    steering = Steering(
        elastic=True, maximum=4, profile=profile, measured=True, migration="benefit"
    )
    world = World(a_config(steps=3, work=work, steering=steering), some_data(16, 0), actors=4)
    world.slots = 64
    run(world, update=LEARN_SECONDS)
    assert examine(world.evidence()).faults() == {}
    report = world.reports[1]
    assert report.migration
    assert report.migration.moved == report.migration.ordered > 0
    emptied = {move.source: move.at for move in report.migration.moves}
    left = [actor for actor in report.actors if actor.name in emptied]
    assert left
    for actor in left:
        busy = max(i.end for i in actor.intervals if i.cause == "busy")
        assert busy < emptied[actor.name] + 3.0 < report.phases.decode
