"""Dynamic sampling: prompts whose groups teach nothing are replaced, so often and no further."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from ebbtide.wire import BatchManifest, Committed, Extended, Frozen, SampleKey, StepOpened
from services.planner.core.config import Grpo
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, flat_worth, some_data
from tests.unit.planner.world import World


def dapo(refills: int) -> Grpo:
    return structs.replace(NO_EVAL, refills=refills, drop_zero=True)


def a_world(*flat: int, refills: int = 2, rows: int = 16) -> World:
    """Steps of two groups; those with these numbers have no variance."""
    world = World(a_config(work=dapo(refills)), some_data(rows, eval_rows=0))
    world.worth = flat_worth(*flat)
    return world


def drawn(world: World) -> list[tuple[int, list[int]]]:
    return [(r.step, [g.group for g in r.groups]) for r in world.records if isinstance(r, Extended)]


def batches(world: World) -> list[set[int]]:
    """Groups that were trained on, by step."""
    refs = [r.manifest for r in world.records if isinstance(r, Frozen)]
    found = [msgspec.msgpack.decode(world.blobs[r.path], type=BatchManifest) for r in refs]
    return [{row.key.group for row in manifest.rows} for manifest in found]


def check(world: World) -> None:
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}


def test_a_group_without_variance_is_replaced_by_another_prompt() -> None:
    world = a_world(1)
    world.calm()
    check(world)
    assert drawn(world) == [(0, [2]), (1, [2])]
    assert batches(world) == [{0, 2}, {0, 2}]


def test_what_was_drawn_in_vain_is_told() -> None:
    world = a_world(1)
    world.calm()
    groups = world.reports[0].groups
    assert (groups.expected, groups.refilled, groups.refills, groups.zero_variance) == (3, 1, 1, 1)
    dropped = [world.answer(SampleKey("", 0, 1, index), 6) for index in range(2)]
    assert groups.dropped_tokens == sum(min(n, 6) for n in dropped)


def test_the_rounds_are_bounded_and_the_step_goes_on_with_what_it_has() -> None:
    world = a_world(1, 2, 3, 4)
    world.calm()
    check(world)
    assert drawn(world) == [(0, [2]), (0, [3]), (1, [2]), (1, [3])]
    assert batches(world) == [{0}, {0}]


def test_nothing_is_drawn_where_every_group_has_variance_or_nobody_asked() -> None:
    for world in (a_world(), a_world(0, 1, refills=0)):
        world.calm()
        check(world)
        assert drawn(world) == []


def test_prompts_that_were_drawn_in_addition_are_used_up() -> None:
    world = a_world(1)
    world.calm()
    plans = [r.plan for r in world.records if isinstance(r, StepOpened)]
    more = [g for r in world.records if isinstance(r, Extended) for g in r.groups]
    assert [plan.data_cursor for plan in plans] == [0, 3]
    ids = [g.prompt_id for plan in plans for g in plan.groups] + [g.prompt_id for g in more]
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.parametrize("whom", ["planner", "learner"])
def test_a_refill_goes_on_after_a_death(whom: str) -> None:
    world = a_world(1)
    while not drawn(world):
        world.one_round()
    getattr(world, f"kill_{whom}")()
    world.calm()
    check(world)
    assert {tuple(groups) for _, groups in drawn(world)} == {(2,)}
    committed = [r.step for r in world.records if isinstance(r, Committed)]
    assert committed == [0, 1]
    assert batches(world)[-1] == {0, 2}
