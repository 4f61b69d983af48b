from typing import Any

from ebbtide import labels
from ebbtide.testing.jobs import a_job
from tests.unit.operator.worlds import JOB, World

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


# --- where the planner chooses --------------------------------------------------------------------

AUTO: dict[str, Any] = {"prefill": {"mode": "auto"}}


def chosen(world: World, *, wanted: bool) -> None:
    """The planner says so, in its field of the status."""
    world.patch_status(JOB, {"prefill": {"wanted": wanted}})


def test_there_is_no_service_before_the_planner_wants_one() -> None:
    world = World(a_job(**AUTO))
    world.rest()
    assert world.alive("prefill") == []


def test_there_is_one_while_the_planner_wants_it() -> None:
    world = World(a_job(**AUTO))
    world.rest()
    chosen(world, wanted=True)
    world.rest()
    assert world.alive("prefill") == ["job-prefill-0"]
    chosen(world, wanted=False)
    world.rest()
    assert world.alive("prefill") == []
    chosen(world, wanted=True)
    world.rest()
    assert world.alive("prefill") == ["job-prefill-1"]


def test_the_operator_leaves_the_planners_choice_alone() -> None:
    world = World(a_job(**AUTO))
    chosen(world, wanted=True)
    world.rest()
    assert world.job
    assert world.job.status["prefill"] == {"wanted": True}


def test_what_is_no_choice_is_none() -> None:
    world = World(a_job(**AUTO))
    world.patch_status(JOB, {"prefill": {"wanted": "maybe"}})
    world.rest()
    assert world.alive("prefill") == []


def test_where_the_user_has_chosen_the_planner_is_not_asked() -> None:
    for job, pods in ((a_job(), []), (a_job(**SERVICE), ["job-prefill-0"])):
        world = World(job)
        chosen(world, wanted=not pods)
        world.rest()
        assert world.alive("prefill") == pods
