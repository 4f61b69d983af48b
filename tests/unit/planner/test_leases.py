"""Leases of actors and of the prefill service: who could not be heard has lost nothing."""

from __future__ import annotations

import pytest

from ebbtide.wire import Dispatched
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.test_job import idle
from tests.unit.planner.world import World


def test_no_sample_is_handed_out_twice_because_the_broker_was_away() -> None:
    world = World(a_config(work=NO_EVAL), some_data())
    while not all(actor.running for actor in world.actors.values()):
        world.one_round()
    idle(world, 60, connected=False)
    world.calm()
    keys = [record.key for record in world.records if isinstance(record, Dispatched)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(("planner_too", "restarted"), [(True, True), (False, False)])
def test_what_nobody_knows_the_journal_of_is_counted_as_begun_again(
    *, planner_too: bool, restarted: bool
) -> None:
    world = World(a_config(work=NO_EVAL), some_data())
    while not all(actor.running for actor in world.actors.values()):
        world.one_round()
    world.one_round()
    if planner_too:
        world.kill_planner()
    world.kill_actor(min(world.actors))
    world.calm()
    assert (world.reports[0].samples.restarted > 0) == restarted
