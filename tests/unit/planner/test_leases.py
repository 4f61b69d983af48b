"""Leases of actors and of the prefill service: who could not be heard has lost nothing."""

from __future__ import annotations

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
