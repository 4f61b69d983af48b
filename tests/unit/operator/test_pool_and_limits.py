"""What the operator does about a pool, deadlines, money and held time."""

from typing import Any

import pytest

from ebbtide.objects import Key
from ebbtide.testing.jobs import a_job
from tests.unit.operator.worlds import JOB, POOL, World, running

# --- the pool -------------------------------------------------------------------------------------


def test_released_actors_go_first() -> None:
    world = running(a_job(decode={"replicas": 3}))
    world.patch(POOL, {"spec": {"replicas": 2, "release": ["job-decode-0"]}})
    world.rest()
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]


def test_a_scale_down_without_names_takes_the_newest() -> None:
    world = running(a_job(decode={"replicas": 3}))
    world.patch(POOL, {"spec": {"replicas": 1}})
    world.rest()
    assert world.alive("decode") == ["job-decode-0"]


def test_a_released_actor_gets_its_whole_drain_time() -> None:
    world = running(a_job(decode={"drainSeconds": 77.0}))
    world.patch(POOL, {"spec": {"replicas": 1, "release": ["job-decode-1"]}})
    world.settle()
    leaving = next(p for p in world.pods("decode") if p.leaving)
    assert (leaving.name, leaving.grace) == ("job-decode-1", 77.0)


def test_the_pool_never_exceeds_its_bound() -> None:
    world = running(a_job(decode={"replicas": 1, "maxReplicas": 3}))
    world.patch(POOL, {"spec": {"replicas": 50}})
    world.rest()
    assert len(world.alive("decode")) == 3


def test_the_pool_counts_its_pods() -> None:
    world = running(a_job(decode={"replicas": 3}))
    pool = world.table.load(POOL)
    assert pool is not None
    assert pool.status["readyReplicas"] == 3
    assert pool.status["desiredReplicas"] == 3


def test_a_pool_that_somebody_deleted_is_made_anew() -> None:
    world = running()
    world.delete(POOL)
    world.rest()
    assert len(world.alive("decode")) == 2
    assert world.table.load(POOL) is not None


def test_a_name_is_not_used_twice_after_a_crash_between_pod_and_number() -> None:
    world = running()
    world.kill("decode", signal=9)
    plan = world.plan()
    pool_status, creates = plan.pool_status, plan.creates
    assert pool_status is not None
    for pod in creates:
        world.create(pod)  # as if the write of the number had been lost
    world.rest()
    assert len(set(world.made)) == len(world.made)
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]


@pytest.mark.parametrize(("scaling", "runs"), [("elastic", True), ("static", False)])
def test_a_job_runs_on_while_the_actors_of_its_elastic_pool_come_back(
    scaling: str, *, runs: bool
) -> None:
    world = running(a_job(planner={"scaling": scaling}))
    world.patch(POOL, {"spec": {"replicas": 0}})
    world.rest()
    world.patch(POOL, {"spec": {"replicas": 2}})
    world.settle()  # made, not started yet
    assert world.own.holds("Running") is runs


def scaled(scaling: str, replicas: int) -> World:
    """A running job whose pool was scaled from one actor, the new ones not started yet."""
    world = running(a_job(planner={"scaling": scaling}, decode={"replicas": 1}))
    world.patch(POOL, {"spec": {"replicas": replicas}})
    world.settle()
    return world


@pytest.mark.parametrize(
    ("scaling", "reason"), [("elastic", "AsWanted"), ("static", "PodsMissing")]
)
def test_actors_of_an_elastic_pool_that_start_are_not_missing(scaling: str, reason: str) -> None:
    assert scaled(scaling, 3).reason("Degraded") == reason


def test_an_elastic_pool_at_zero_misses_nobody_nor_when_it_comes_back() -> None:
    world = scaled("elastic", 0)
    world.rest()
    assert world.reason("Degraded") == "AsWanted"
    world.patch(POOL, {"spec": {"replicas": 2}})
    world.settle()
    assert world.reason("Degraded") == "AsWanted"
    assert "PodsMissing" not in {note.reason for note in world.events}


def test_an_elastic_pool_without_any_actor_ready_for_long_is_missing_one() -> None:
    world = scaled("elastic", 1)
    world.say("job-decode-0", ready=False)
    world.settle()
    world.now += 121.0
    world.settle()
    found = world.own.condition("Degraded")
    assert found is not None
    assert (found.reason, found.message) == ("PodsMissing", "ready: decode 0/1")


def test_one_pod_that_waits_without_a_reason_is_told_as_one_and_with_that() -> None:
    world = scaled("elastic", 2)
    world.now += 121.0
    world.settle()
    found = world.own.condition("Degraded")
    words = (
        "1 pod waits for its start; job-decode-1: its node has not started it, and says no reason"
    )
    assert found is not None
    assert found.message == words


# --- deadlines and money --------------------------------------------------------------------------


def late(world: World, seconds: float) -> str:
    world.now += seconds
    world.settle()
    return world.own.conditions[-3].reason if world.own.ended else ""


def test_pods_that_are_never_placed_fail_the_job() -> None:
    world = World(a_job(deadlines={"schedulingSeconds": 60.0}))
    world.settle()
    assert late(world, 59.0) == ""
    assert late(world, 2.0) == "SchedulingDeadlineExceeded"


def test_a_job_that_never_makes_progress_fails() -> None:
    world = World(a_job(deadlines={"preRunningSeconds": 60.0}))
    world.rest()
    assert late(world, 50.0) == ""
    assert late(world, 15.0) == "PreRunningDeadlineExceeded"


def test_a_job_that_stalls_fails() -> None:
    world = running(a_job(deadlines={"stallSeconds": 60.0}))
    world.now += 50.0
    world.progress(step=2)
    assert late(world, 50.0) == ""
    assert late(world, 15.0) == "StallDeadlineExceeded"


def test_suspended_time_is_not_active_time() -> None:
    world = running(a_job(deadlines={"activeSeconds": 60.0}))
    world.patch(JOB, {"spec": {"suspend": True}})
    world.rest()
    assert late(world, 1000.0) == ""
    world.patch(JOB, {"spec": {"suspend": False}})
    world.rest()
    assert late(world, 20.0) == ""
    assert late(world, 60.0) == "ActiveDeadlineExceeded"


def test_the_operator_looks_again_when_a_deadline_is_due() -> None:
    world = running(a_job(deadlines={"stallSeconds": 5.0}))
    assert world.plan().requeue_after == pytest.approx(3.0, abs=2.0)


PRICED: dict[str, Any] = {"prices": [{"pool": "default", "perHour": 1.0}]}


@pytest.mark.parametrize(
    ("action", "kind", "reason"),
    [
        ("Suspend", "Suspended", "BudgetExceeded"),
        ("Fail", "Failed", "BudgetExceeded"),
        ("Warn", "Degraded", "OverBudget"),
    ],
)
def test_a_budget_acts_as_the_job_says(action: str, kind: str, reason: str) -> None:
    world = running(a_job(**PRICED, budget={"maxCost": 5.0, "onExceed": action}))
    world.patch_status(JOB, {"cost": {"accrued": 5.5}})
    world.rest()
    assert world.own.holds(kind)
    assert world.reason(kind) == reason


def test_a_higher_budget_resumes_the_job() -> None:
    world = running(a_job(**PRICED, budget={"maxCost": 5.0}))
    world.patch_status(JOB, {"cost": {"accrued": 5.5}})
    world.rest()
    world.patch(JOB, {"spec": {"budget": {"maxCost": 10.0}}})
    world.rest()
    assert world.own.holds("Running")


# --- held time ------------------------------------------------------------------------------------


def test_held_time_runs_from_start_to_end_of_the_process() -> None:
    world = running()
    world.now += 30.0
    name = world.kill("decode", signal=9)
    ended = world.now
    world.now += 30.0
    world.settle()
    usage = next(u for u in world.plan().usage if u.pod == name)
    assert usage.ended_at == pytest.approx(ended)
    assert usage.seconds == pytest.approx(ended - usage.started_at)


def test_a_pod_object_stays_until_its_held_time_is_written() -> None:
    world = running()
    world.delete(Key("Pod", "default", "job-decode-0"))
    world.run_pods()
    assert any(p.name == "job-decode-0" for p in world.pods())
    world.settle()
    assert not any(p.name == "job-decode-0" for p in world.pods())
    assert world.held["job-decode-0"] is not None
