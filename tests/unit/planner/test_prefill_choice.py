"""The planner chooses whether there is a prefill service, records it, and holds to it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from ebbtide.status import PrefillStatus
from ebbtide.wire import Beat, Committed, Decided, Heartbeat
from services.planner.core import account
from services.planner.core.config import Economy
from services.planner.core.steering import Steering
from tests.unit.planner.builders import NO_EVAL, a_config, some_data
from tests.unit.planner.world import World

SECONDS_PER_TOKEN = 100.0
"""So slow that computing anything twice is worth a service."""


class PromptsWorld(World):
    """Every heartbeat of an actor tells of more prompt tokens, while `computes`."""

    computes = True

    def beat(self, message: Beat) -> None:
        if isinstance(message, Heartbeat):
            told: Counter[str] = self.__dict__.setdefault("told", Counter())
            told[message.actor] += 4 * self.computes
            tokens = told[message.actor]
            stats = msgspec.structs.replace(
                message.stats, prefill_tokens=tokens, prefill_seconds=tokens * SECONDS_PER_TOKEN
            )
            message = msgspec.structs.replace(message, stats=stats)
        super().beat(message)


def a_world(*, auto: bool = True, service: float = 0.001) -> PromptsWorld:
    """Two groups of two, each split over two actors at first."""
    price: dict[str, float | None] = {"decode": 1.0, "learner": 2.0, "prefill": service}
    config = a_config(
        steps=6,
        work=NO_EVAL,
        steering=Steering(auto_prefill=auto),
        economy=Economy("USD", price, "value-of-time", 0.0),
    )
    return PromptsWorld(config, some_data(eval_rows=0))


def decisions(world: World) -> list[str]:
    found = [record for record in world.records if isinstance(record, Decided)]
    return [account.load(one.decision).prefill for one in found]


def committed(world: World, steps: int) -> None:
    while sum(isinstance(record, Committed) for record in world.records) < steps:
        world.one_round()
    while len(decisions(world)) <= steps:
        world.one_round()


def test_a_job_begins_without_the_service_and_has_it_once_it_pays() -> None:
    world = a_world()
    committed(world, 1)
    assert decisions(world) == ["colocated", "service"]
    found = world.seat.planner.prefill_status()
    assert found
    assert found.wanted
    assert "pays" in found.reason


@pytest.mark.parametrize("service", [1e6, 1e9])
def test_a_dear_service_is_not_wanted(service: float) -> None:
    world = a_world(service=service)
    committed(world, 2)
    assert decisions(world) == ["colocated"] * 3
    assert world.seat.planner.prefill_status() is not None


def test_it_is_given_up_when_nothing_is_computed_twice_any_more() -> None:
    world = a_world()
    committed(world, 1)
    world.computes = False
    committed(world, 5)
    assert decisions(world)[1] == "service"
    assert decisions(world)[-1] == "colocated"


def test_where_the_user_has_chosen_nothing_is_said() -> None:
    world = a_world(auto=False)
    committed(world, 1)
    assert world.seat.planner.prefill_status() is None
    assert decisions(world) == ["", ""]


def test_before_the_first_decision_nothing_is_said() -> None:
    """What the planner before it had said stands."""
    assert a_world().seat.planner.prefill_status() is None


def test_a_planner_that_takes_over_holds_to_what_was_decided() -> None:
    world = a_world()
    committed(world, 1)
    before = world.seat.planner.prefill_status()
    world.kill_planner()
    assert world.seat.planner.prefill_status() == before
    assert isinstance(before, PrefillStatus)
    assert before.wanted


def test_the_report_says_what_was_chosen_and_why() -> None:
    world = a_world()
    committed(world, 2)
    decision = world.reports[1].decision
    assert decision
    assert decision.prefill == "service"
    assert "s of an actor" in decision.prefill_reason
    assert world.reports[0].prefill.actor_seconds > 0
