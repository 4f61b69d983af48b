"""A job that samples and scores with the policy that it was given, and never learns."""

from __future__ import annotations

import pytest

from ebbtide.wire import BatchManifest, Checkpointed, Committed, Frozen, Manifest, Ref, decode
from services.planner.core.config import Given
from services.planner.core.deciding import terms
from services.planner.core.events import Suspend, Tick
from tests.checker.verdict import examine
from tests.unit.planner.builders import a_config, a_policy, some_data
from tests.unit.planner.world import World

GIVEN = Given(a_policy(0, attempt=0), Ref("jobs/job-1/base/index.msgpack", "d", 1))


def a_world(steps: int = 3) -> World:
    return World(a_config(steps=steps, given=GIVEN), some_data())


def suspended(world: World) -> None:
    """The planner is told to go, and saves what it can."""
    world.feed(world.seat, Suspend())
    for _ in range(200):
        if world.seat.planner.suspended:
            return
        world.one_round()
    raise AssertionError("it does not come to rest")


def test_every_step_is_sampled_from_the_given_policy_and_the_job_completes() -> None:
    world = a_world()
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}
    committed = [r for r in world.records if isinstance(r, Committed)]
    assert [r.step for r in committed] == [0, 1, 2, 3]
    assert {(r.policy, r.index.path) for r in committed} == {(GIVEN.policy, GIVEN.index.path)}


def test_each_training_step_leaves_a_batch_with_its_samples_and_advantages() -> None:
    world = a_world()
    world.calm()
    places = [r.manifest.path for r in world.records if isinstance(r, Frozen)]
    batches = [decode(world.blobs[place], BatchManifest) for place in places]
    assert [batch.step for batch in batches] == [0, 1, 2]
    assert [len(batch.rows) for batch in batches] == [4, 4, 4]
    assert {batch.base for batch in batches} == {GIVEN.policy}
    assert all(any(row.advantage for row in batch.rows) for batch in batches)


def test_reports_have_rewards_and_no_learner() -> None:
    world = a_world()
    world.calm()
    kinds = [world.reports[step].kind for step in range(4)]
    assert kinds == ["rollout", "rollout", "rollout", "eval"]
    assert all(world.reports[step].rewards for step in range(3))
    assert not any(report.learner for report in world.reports.values())
    assert {report.next_policy for report in world.reports.values()} == {0}


def test_its_checkpoints_are_the_planners_part_alone() -> None:
    world = a_world()
    world.calm()
    paths = [r.manifest.path for r in world.records if isinstance(r, Checkpointed)]
    saved = [decode(world.blobs[path], Manifest) for path in paths]
    assert [one.step for one in saved] == [1, 2, 3]
    assert {one.learner_refs for one in saved} == {()}
    assert saved[-1].data_cursor == 6


def test_a_suspended_job_goes_on_with_the_next_step() -> None:
    world = a_world()
    while not any(isinstance(r, Committed) for r in world.records):
        world.one_round()
    suspended(world)
    world.kill_learner()  # what a resumption does: a new attempt
    world.calm()
    steps = [r.step for r in world.records if isinstance(r, Committed)]
    assert steps == [0, 1, 2, 3]
    assert examine(world.evidence()).faults() == {}


@pytest.mark.parametrize("effects", range(0, 60, 7))
def test_a_planner_killed_between_any_two_effects_loses_nothing(effects: int) -> None:
    world = a_world(steps=2)
    for _ in range(12):
        world.one_round()
        world.feed(world.seat, Tick(connected=True))
    world.perform(world.seat, effects % 5)
    world.kill_planner(zombie=bool(effects % 2))
    world.calm()
    assert examine(world.evidence()).faults() == {}
    assert [r.step for r in world.records if isinstance(r, Committed)] == [0, 1, 2]


def test_another_policy_than_the_one_that_it_began_with_ends_the_job() -> None:
    world = a_world()
    while not any(isinstance(r, Checkpointed) for r in world.records):
        world.one_round()
    other = Given(a_policy(0, attempt=0, content="other"), GIVEN.index)
    world.config = a_config(steps=3, given=other)
    world.kill_learner()
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "failed"


def test_no_rank_is_paid_for_while_actors_decode() -> None:
    assert terms(a_config(given=GIVEN)).held_members == 0
    assert terms(a_config()).held_members == 2
