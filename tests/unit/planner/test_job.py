"""Whole jobs in the model world: first without faults, then with stated ones."""

from __future__ import annotations

import pytest

from ebbtide.wire import Committed, Dispatched, StepOpened
from services.planner.core.config import Sft
from tests.checker.verdict import examine
from tests.unit.planner.builders import a_config, some_data
from tests.unit.planner.world import World


def check(world: World) -> None:
    """Nothing is lost, nothing doubled, and every step is committed once, in order."""
    verdict = examine(world.evidence())
    assert verdict.faults() == {}
    committed = [r.step for r in world.records if isinstance(r, Committed)]
    assert world.replayed().next_step == world.config.last_step + 1
    if world.attempt == 1:
        assert committed == list(range(world.config.last_step + 1))


@pytest.mark.parametrize("actors", [1, 2, 3])
def test_a_job_without_faults_completes(actors: int) -> None:
    world = World(a_config(), some_data(), actors=actors)
    world.calm()
    assert world.outcome
    assert (world.outcome.outcome, world.outcome.reason) == ("complete", "Complete")
    check(world)
    dispatched = [r for r in world.records if isinstance(r, Dispatched)]
    planned = sum(g.size for r in world.records if isinstance(r, StepOpened) for g in r.plan.groups)
    assert len(dispatched) == planned == 2 * 4 + 2 + 2


def test_a_supervised_job_needs_no_actor() -> None:
    world = World(a_config(work=Sft(batch=4, updates=3)), some_data(), actors=0)
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert len(world.learner.updates) == 2
