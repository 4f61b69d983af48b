"""Restarts that are asked for, notices of interruption, and what is left of a job that ended."""

from typing import Any

import pytest

from ebbtide.objects import Key
from ebbtide.ports import Meta, Resource
from ebbtide.spec import API_VERSION
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.site import KubeSite, Site
from tests.unit.operator.worlds import JOB, World, running

NOTICE = {"disrupted": "PreemptionByScheduler"}


def complete(job: Resource) -> World:
    world = running(job)
    world.progress(outcome="complete")
    world.kill("planner", code=0)
    world.settle()
    return world


# --- restart.id -----------------------------------------------------------------------------------


def test_a_new_restart_id_frees_every_pod_and_starts_the_next_attempt() -> None:
    world = running()
    world.patch(JOB, {"spec": {"restart": {"id": "a"}}})
    world.settle()
    assert [pod.name for pod in world.pods() if pod.leaving] == ["job-planner-1-0"]  # it saves
    world.rest()
    assert (world.own.attempt, world.own.restart_id, world.own.restarts) == (2, "a", 0)
    assert world.alive("decode") == ["job-decode-2", "job-decode-3"]


def test_the_same_restart_id_again_does_nothing() -> None:
    world = running(a_job(restart={"id": "a"}))
    world.patch(JOB, {"spec": {"restart": {"id": "a"}, "seed": 3}})
    world.rest()
    assert world.own.attempt == 1


def test_a_restart_that_breaks_off_anywhere_is_done_once() -> None:
    for writes in range(8):
        world = running()
        world.patch(JOB, {"spec": {"restart": {"id": "a"}}})
        world.apply(world.plan(), writes=writes)
        world.run_pods()
        world.apply(world.plan(), writes=writes)
        world.rest()
        assert (world.own.attempt, world.own.restart_id) == (2, "a")


def test_an_ended_job_is_not_restarted() -> None:
    world = complete(a_job())
    world.patch(JOB, {"spec": {"restart": {"id": "a"}}})
    world.rest()
    assert (world.pods(), world.own.phase) == ([], "Complete")


# --- notices of interruption ----------------------------------------------------------------------


def test_an_actor_with_a_notice_hands_over_and_is_replaced_at_once() -> None:
    world = running(a_job(backoffLimit=0, decode={"drainSeconds": 60.0}))
    world.say("job-decode-0", **NOTICE)
    world.settle()
    assert [(p.name, p.grace) for p in world.pods() if p.leaving] == [("job-decode-0", 60.0)]
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]
    assert (world.own.failures, world.own.restarts) == (0, 1)
    assert "Interrupted" in {note.reason for note in world.events}


def test_every_pod_of_a_node_that_is_about_to_go_hands_over() -> None:
    world = running()
    for name in ("job-decode-1", "job-reward-0"):
        world.patch(Key("Pod", "default", name), {"spec": {"nodeName": "spot-1"}})
    world.interrupted = {"spot-1": "aws-node-termination-handler/spot-itn"}
    world.rest()
    assert world.alive("decode") == ["job-decode-0", "job-decode-2"]
    assert world.alive("reward") == ["job-reward-1"]
    assert world.own.attempt == 1


def test_a_rank_with_a_notice_lets_the_planner_save_before_the_next_attempt() -> None:
    world = running(a_job(backoffLimit=0))
    world.say("job-learner-1-1", **NOTICE)
    world.settle()
    assert [pod.name for pod in world.pods() if pod.leaving] == ["job-planner-1-0"]
    world.rest()
    assert (world.own.attempt, world.own.failures, world.own.restarts) == (2, 0, 1)
    assert world.own.last_failure is not None
    assert world.own.last_failure.reason == "Interrupted"


def test_a_rank_whose_node_goes_before_the_planner_has_saved_is_not_waited_for() -> None:
    world = running()
    world.say("job-learner-1-1", **NOTICE)
    world.settle()
    world.finish("job-learner-1-1", signal=9)
    world.settle()
    assert world.own.attempt == 2


def test_a_planner_with_a_notice_is_followed_by_another_in_the_same_attempt() -> None:
    world = running()
    world.say("job-planner-1-0", **NOTICE)
    world.rest()
    assert (world.own.attempt, world.alive("planner")) == (1, ["job-planner-1-1"])


def test_pods_that_are_interrupted_again_and_again_do_not_spin() -> None:
    world = running()
    for _ in range(40):
        for pod in world.pods("learner"):
            if pod.alive:
                world.say(pod.name, **NOTICE)
        world.settle()
        world.run_pods()
    assert world.own.attempt < 10  # each waits longer than the one before


# --- ClusterRLHFRuntime ---------------------------------------------------------------------------


def a_runtime(**spec: Any) -> Resource:
    return Resource(API_VERSION, "ClusterRLHFRuntime", Meta(name="r"), spec=spec)


def test_a_job_waits_for_the_runtime_that_it_names() -> None:
    site = Site(kubernetes=KubeSite(image="i"))
    world = World(a_job(runtimeRef={"name": "r"}), site=site)
    world.rest()
    assert (world.pods(), world.reason("Accepted")) == ([], "NoRuntime")
    assert world.job is not None
    assert world.job.status["phase"] == "Pending"
    world.runtime = a_runtime(pools={"default": {"resources": "all"}})
    world.rest()
    assert "resources" in world.own.conditions[0].message
    world.runtime = a_runtime(image="theirs")
    world.rest()
    assert world.own.holds("Running")
    assert world.pods("decode")[0].spec.runtime == {"image": "theirs"}


def test_a_runtime_that_goes_takes_no_pod_with_it() -> None:
    world = World(a_job(runtimeRef={"name": "r"}), site=Site(kubernetes=KubeSite(image="i")))
    world.runtime = a_runtime()
    world.rest()
    before, world.runtime = world.alive(), None
    world.rest()
    assert world.alive() == before


# --- what is left of it ---------------------------------------------------------------------------


def test_a_job_is_deleted_when_its_time_after_the_end_has_passed() -> None:
    world = complete(a_job(ttlSecondsAfterFinished=300.0))
    world.rest()
    assert world.pods() == []
    wait = world.plan().requeue_after
    assert wait == pytest.approx(300.0, abs=10.0)
    world.now += 301.0
    world.rest()
    assert world.table.objects == {}
    assert "Expired" in {note.reason for note in world.events}


def test_a_job_without_that_time_stays() -> None:
    world = complete(a_job())
    world.now += 1e8
    world.rest()
    assert world.own.phase == "Complete"


def test_the_pods_of_an_ended_job_are_kept_where_it_says_so() -> None:
    world = complete(a_job(deletionPolicy="KeepAll", ttlSecondsAfterFinished=60.0))
    world.rest()
    assert (len(world.pods()), world.own.holds("Draining")) == (6, False)
    world.now += 61.0
    world.rest()
    assert world.table.objects == {}
