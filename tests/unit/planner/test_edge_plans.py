"""Steps at the edge of what can be planned: the plan is sensible, and `explain` says so.

Each goes through the whole planner: what is seen in one step decides the next, and the report
is put into words as `ebbtide explain` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ebbtide.cli.explain import in_words
from ebbtide.reports import DecisionReport
from services.planner.core.config import Economy
from services.planner.core.steering import Steering, straight_profile
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.world import World

CHEAP_STARTS = straight_profile("model", first=0.5, more=0.01, start=0.1)
LIMIT = 40


def played(
    lengths: Callable[[int], int],
    *,
    prompts: int = 6,
    group: int = 2,
    actors: int = 2,
    minimum: int = 0,
    maximum: int = 4,
    economy: Economy | None = None,
    steps: int = 3,
) -> World:
    """A job to its end; `lengths`: tokens of each prompt's answers, cut at the limit."""
    work = msgspec.structs.replace(
        NO_EVAL, prompts=prompts, group_size=group, max_new_tokens=LIMIT, slots=8, replicas=actors
    )
    steering = Steering(
        elastic=True, minimum=minimum, maximum=maximum, profile=CHEAP_STARTS, measured=True
    )
    changes: dict[str, Any] = {"economy": economy} if economy else {}
    config = a_config(steps=steps, work=work, steering=steering, shuffle=False, **changes)
    world = World(config, some_data(rows=prompts, eval_rows=0), actors=actors)
    world.slots = 8
    world.answer = lambda key, _: lengths(key.group)
    world.calm(rounds=4000)
    assert examine(world.evidence()).faults() == {}
    return world


def decided(world: World, step: int) -> DecisionReport:
    found = world.reports[step].decision
    assert found is not None
    return found


def words(world: World, step: int) -> str:
    return "\n".join(in_words(step, decided(world, step)))


def test_without_history_the_pool_is_held_and_said_to_be() -> None:
    world = played(lambda group: 5 + group)
    assert decided(world, 0).actors == 2
    assert "2 actors (held, elastic)" in words(world, 0)
    assert "no answer has been seen yet: the pool is held as it is" in words(world, 0)


def test_one_prompt_with_one_answer_takes_one_actor() -> None:
    world = played(lambda _: 9, prompts=1, group=1, actors=3)
    found = decided(world, 2)
    assert (found.actors, found.items) == (1, 1)
    assert "1 samples" in words(world, 2)


def test_a_pool_of_one_actor_has_one_candidate() -> None:
    world = played(lambda group: 5 + group, actors=1, minimum=1, maximum=1)
    found = decided(world, 2)
    assert (found.actors, [one.actors for one in found.candidates]) == (1, [1])
    assert "1 to 1 allowed" in words(world, 2)


@pytest.mark.parametrize(("worth", "actors"), [(0.0, 2), (1e9, 3)])
def test_the_number_stops_at_the_bound_that_the_objective_runs_into(
    worth: float, actors: int
) -> None:
    prices: dict[str, float | None] = {
        "decode": 1e3,
        "learner": 0.01,
        "planner": 0.0,
        "reward": 0.0,
    }
    economy = Economy("USD", prices, "value-of-time", worth)
    world = played(lambda _: 20, group=6, minimum=2, maximum=3, economy=economy)
    assert decided(world, 2).actors == actors
    assert "2 to 3 allowed" in words(world, 2)


def test_lengths_that_are_all_equal_are_split_evenly() -> None:
    world = played(lambda _: 12, minimum=2, maximum=2)
    found = decided(world, 2)
    assert found.rule in ("chosen", "kept")
    served = [actor.samples for actor in world.reports[2].actors if actor.samples]
    assert served == [6, 6]
    assert found.calibration is not None
    assert found.calibration.mae == pytest.approx(0.0, abs=0.5)


def test_one_extreme_length_has_an_actor_to_itself() -> None:
    world = played(lambda group: 39 if group == 0 else 3, group=2, minimum=2, maximum=2)
    loads = sorted(actor.samples for actor in world.reports[2].actors if actor.samples)
    assert loads == [2, 10], "both answers of the extreme prompt, and nothing else"
    assert decided(world, 2).longest > 20
    assert "the longest" in words(world, 2)


def test_answers_that_the_limit_cuts_are_expected_at_the_limit() -> None:
    world = played(lambda _: 10 * LIMIT)
    found = decided(world, 2)
    assert found.longest == pytest.approx(LIMIT, rel=0.1)
    assert found.predicted_decode_seconds is not None
    assert found.predicted_decode_seconds >= 0.5 * LIMIT * 0.95
    assert "12 answers, 12 cut by the limit" in words(world, 2)


def test_without_prices_members_count_alike_and_no_cost_is_told() -> None:
    economy = Economy("USD", {"decode": None, "learner": 2.0}, "value-of-time", 9.0)
    world = played(lambda group: 5 + group, economy=economy)
    found = decided(world, 2)
    assert all(one.cost is None for one in found.candidates)
    assert "a price is unknown" in found.reason
    assert 1 <= found.actors <= 4
    assert world.reports[2].cost.total is None
