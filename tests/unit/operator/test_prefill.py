from typing import Any

from ebbtide import labels
from ebbtide.testing.jobs import a_job
from tests.unit.operator.worlds import World

SERVICE: dict[str, Any] = {"prefill": {"mode": "service", "pool": "big"}}


def test_a_colocated_job_has_no_prefill_service() -> None:
    world = World()
    world.rest()
    assert world.alive("prefill") == []


def test_a_job_with_the_service_has_one_pod_of_it_in_its_pool() -> None:
    world = World(a_job(**SERVICE))
    world.rest()
    [pod] = world.pods("prefill")
    assert pod.name == "job-prefill-0"
    assert pod.spec.command[-1] == "services.prefill"
    assert pod.spec.warm
    assert pod.label(f"{labels.GROUP}/pool") == "big"


def test_a_killed_service_is_started_again_under_another_name() -> None:
    world = World(a_job(**SERVICE))
    world.rest()
    world.finish("job-prefill-0", signal=9)
    world.rest()
    assert world.alive("prefill") == ["job-prefill-1"]
    assert world.own.failures == 0


def test_the_job_runs_while_its_prefill_service_is_away() -> None:
    world = World(a_job(**SERVICE))
    world.rest()
    world.finish("job-prefill-0", signal=9)
    world.settle()
    assert world.own.holds("Running")
