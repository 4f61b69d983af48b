"""What the operator does about a job, scene by scene."""

from typing import Any

import pytest

from ebbtide import labels
from ebbtide.objects import Key
from ebbtide.testing.jobs import a_job, a_spec, an_sft_spec
from ebbtide_operator.core.reconcile import JOB_FINALIZER
from ebbtide_operator.core.site import KubeSite, Sandbox, Site
from tests.unit.operator.worlds import JOB, POOL, World, running


def test_a_new_job_gets_all_its_pods() -> None:
    world = running()
    assert world.alive() == [
        "job-decode-0",
        "job-decode-1",
        "job-learner-1-0",
        "job-learner-1-1",
        "job-planner-1-0",
        "job-reward-0",
    ]
    assert world.own.holds("Accepted")
    assert world.own.holds("Running")
    assert world.own.attempt == 1


def test_a_supervised_job_has_neither_actors_nor_scorers() -> None:
    world = running(a_job(spec=an_sft_spec()))
    assert {name.rsplit("-", 2)[0] for name in world.alive()} == {"job-planner", "job-learner"}
    assert world.table.load(POOL) is None


def test_a_job_on_recorded_batches_has_neither_actors_nor_scorers() -> None:
    world = running(a_job(spec=a_spec(recorded={"uid": "other"}, reward=None)))
    assert {name.rsplit("-", 2)[0] for name in world.alive()} == {"job-planner", "job-learner"}
    assert world.table.load(POOL) is None


def test_a_job_that_never_learns_has_no_rank_and_runs() -> None:
    world = running(a_job(mode="rollout-only"))
    assert world.alive() == ["job-decode-0", "job-decode-1", "job-planner-1-0", "job-reward-0"]
    assert world.own.holds("Running")
    assert world.own.attempt == 1


def test_pods_know_their_job_attempt_and_rank() -> None:
    world = running(site=Site(rendezvous="file:///r/{uid}-{attempt}", env={"EBBTIDE_X": "y"}))
    pod = next(p for p in world.pods("learner") if p.name == "job-learner-1-1")
    assert pod.spec.env["EBBTIDE_RANK"] == "1"
    assert pod.spec.env["EBBTIDE_RENDEZVOUS"] == f"file:///r/{world.job_uid}-1"
    assert pod.spec.env["EBBTIDE_ATTEMPT"] == "1"
    assert pod.spec.env["EBBTIDE_X"] == "y"
    assert pod.spec.warm
    assert pod.label(labels.JOB_UID) == world.job_uid


def test_actors_alone_run_in_vllms_environment_and_are_not_forked() -> None:
    world = running(a_job(decode={"engine": "vllm"}))
    others = [*world.pods("learner"), *world.pods("planner"), *world.pods("reward")]
    assert {(p.spec.interpreter, p.spec.warm) for p in world.pods("decode")} == {("vllm", False)}
    assert {p.spec.interpreter for p in others} == {""}


def with_programs(sandbox: Sandbox) -> World:
    kube = KubeSite(image="ebbtide:1", sandbox=sandbox)
    components = [{"type": "exact", "name": "e"}, {"type": "code", "name": "c"}]
    return World(a_job(reward={"components": components}), site=Site(kubernetes=kube))


def test_programs_are_refused_where_no_cell_is_set_up_and_the_fix_is_named() -> None:
    world = with_programs(Sandbox())
    world.rest()
    assert world.pods() == []
    assert world.reason("Accepted") == "SpecInvalid"
    said = next(one.message for one in world.own.conditions if one.type == "Accepted")
    assert "spec.reward.components.1" in said
    assert "jobs.sandbox" in said


def test_programs_are_taken_where_cells_are_set_up() -> None:
    world = with_programs(Sandbox(seccomp_profile="ebbtide/cells.json"))
    world.rest()
    assert world.pods("reward")[0].spec.cells


def test_an_invalid_job_starts_nothing_and_says_why() -> None:
    world = World(a_job(training={"totalSteps": 0}))
    world.rest()
    assert world.pods() == []
    assert world.reason("Accepted") == "SpecInvalid"
    assert "training.totalSteps" in world.own.conditions[0].message
    world.patch(JOB, {"spec": {"training": {"totalSteps": 3}}})
    world.rest()
    assert world.own.holds("Running")


@pytest.mark.parametrize("end", [{"signal": 9}, {"code": 1}])
def test_a_dead_rank_starts_the_next_attempt(end: dict[str, Any]) -> None:
    world = running()
    world.kill("learner", **end)
    world.rest()
    assert world.own.attempt == 2
    assert world.alive("learner") == ["job-learner-2-0", "job-learner-2-1"]
    assert world.alive("planner") == ["job-planner-2-0"]
    assert world.alive("decode") == ["job-decode-0", "job-decode-1"]
    assert world.alive("reward") == ["job-reward-0"]


def test_two_gangs_never_run_side_by_side() -> None:
    world = running()
    world.kill("learner", signal=9)
    world.settle()
    assert [p.name for p in world.pods("learner") if not p.finished] == ["job-learner-1-1"]
    world.run_pods()
    world.settle()
    assert world.alive("learner") == ["job-learner-2-0", "job-learner-2-1"]


def test_a_gang_that_will_not_die_is_given_up_after_its_grace() -> None:
    world = running()
    world.kill("learner", signal=9)
    world.settle()
    world.now += 13.0
    world.settle()
    assert world.alive("learner") == ["job-learner-2-0", "job-learner-2-1"]


def test_a_dead_planner_is_replaced_in_the_same_attempt() -> None:
    world = running()
    world.kill("planner", signal=9)
    world.rest()
    assert world.own.attempt == 1
    assert world.alive("planner") == ["job-planner-1-1"]
    assert world.alive("learner") == ["job-learner-1-0", "job-learner-1-1"]


def test_a_rank_that_somebody_deleted_starts_the_next_attempt() -> None:
    world = running()
    world.delete(Key("Pod", "default", "job-learner-1-1"))
    world.rest()
    assert world.own.attempt == 2
    assert world.own.restarts == 0


def test_a_dead_actor_is_replaced_under_another_name() -> None:
    world = running()
    world.kill("decode", signal=9)
    world.rest()
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]
    assert world.own.attempt == 1


# --- whose fault ----------------------------------------------------------------------------------


def test_own_failures_beyond_the_limit_end_the_job() -> None:
    world = running(a_job(backoffLimit=1))
    for _ in range(2):
        world.kill("planner", code=1)
        world.rest()
        world.progress(step=world.own.attempt + 1)
    assert world.reason("Failed") == "BackoffLimitExceeded"
    assert world.alive() == []


def test_faults_of_the_infrastructure_do_not_count_toward_the_limit() -> None:
    world = running(a_job(backoffLimit=0))
    for step in range(2, 8):
        world.kill("learner", signal=9)
        world.rest()
        world.progress(step=step)
    assert not world.own.ended
    assert (world.own.failures, world.own.restarts) == (0, 6)


def test_restarts_without_progress_end_some_time() -> None:
    world = running(site=Site(restart_limit=3))
    for _ in range(4):
        world.kill("planner", signal=9)
        world.rest()
        world.now += 60.0
        world.rest()
    assert world.reason("Failed") == "RestartLimitExceeded"


def test_progress_forgives_restarts() -> None:
    world = running(site=Site(restart_limit=3))
    for step in range(2, 10):
        world.kill("planner", signal=9)
        world.rest()
        world.progress(step=step)
    assert not world.own.ended


def test_the_peers_of_a_killed_rank_are_not_the_jobs_fault() -> None:
    world = running(a_job(backoffLimit=0))
    world.finish("job-learner-1-0", code=1)
    world.finish("job-learner-1-1", signal=9)
    world.rest()
    assert (world.own.failures, world.own.attempt) == (0, 2)
    assert world.own.last_failure is not None
    assert world.own.last_failure.pod == "job-learner-1-1"


def test_a_refusal_is_tried_once_more_and_then_ends_the_job() -> None:
    world = running()
    world.kill("planner", code=2)
    world.rest()
    assert not world.own.ended
    world.kill("planner", code=2)
    world.rest()
    assert world.reason("Failed") == "RoleRefused"
    failed = world.own.condition("Failed")
    assert failed is not None
    assert "last words of job-planner-1-1" in failed.message


def test_repeated_failures_wait_longer_and_longer() -> None:
    world = running()
    waits = []
    for _ in range(4):
        name = world.kill("planner", signal=9)
        start = world.now
        while world.alive("planner") in ([], [name]):
            world.settle()
            world.run_pods()
            world.now += 0.5
        waits.append(world.now - start)
    assert waits[0] < 1.5 < waits[2] < waits[3]


def test_a_failure_is_counted_once_whatever_the_order_of_writes() -> None:
    world = running(a_job(backoffLimit=100))
    world.kill("decode", code=1)
    plan = world.plan()
    world.apply(plan, writes=1)  # the status is written, then the operator dies
    world.rest()
    assert (world.own.failures, world.own.restarts) == (1, 1)


def test_the_last_failure_is_kept_with_the_tail_of_its_log() -> None:
    world = running()
    world.kill("decode", code=1)
    world.rest()
    kept = world.own.last_failure
    assert kept is not None
    assert (kept.role, kept.pod, kept.exit_code) == ("decode", "job-decode-0", 1)
    assert kept.message == "last words of job-decode-0"
    assert "PodFailed" in {note.reason for note in world.events}


# --- suspend, resume, ends ------------------------------------------------------------------------


def test_suspension_lets_the_planner_save_first_and_then_frees_everything() -> None:
    world = running()
    world.patch(JOB, {"spec": {"suspend": True}})
    world.settle()
    assert [p.name for p in world.pods() if p.leaving] == ["job-planner-1-0"]
    assert world.reason("Suspended") == "Suspending"
    world.rest()
    assert world.pods() == []
    assert world.own.holds("Suspended")
    assert world.own.phase == "Suspended"


def test_suspension_without_a_checkpoint_frees_everything_at_once() -> None:
    world = running(a_job(checkpoint={"onSuspend": False}))
    world.patch(JOB, {"spec": {"suspend": True}})
    world.settle()
    assert all(p.leaving for p in world.pods())


def test_a_resumed_job_goes_on_with_the_next_attempt() -> None:
    world = running()
    world.patch(JOB, {"spec": {"suspend": True}})
    world.rest()
    world.patch(JOB, {"spec": {"suspend": False}})
    world.rest()
    assert world.own.attempt == 2
    assert world.own.holds("Running")
    assert world.alive("planner") == ["job-planner-2-0"]
    assert world.alive("decode") == ["job-decode-2", "job-decode-3"]
    assert "Resumed" in {note.reason for note in world.events}


def test_resuming_in_the_middle_of_a_suspension_keeps_the_gang() -> None:
    world = running()
    world.patch(JOB, {"spec": {"suspend": True}})
    world.settle()
    world.patch(JOB, {"spec": {"suspend": False}})
    world.rest()
    assert world.own.attempt == 1
    assert world.alive("planner") == ["job-planner-1-1"]


def test_resuming_when_the_ranks_have_just_left_starts_the_next_attempt() -> None:
    world = running(a_job(checkpoint={"onSuspend": False}))
    world.patch(JOB, {"spec": {"suspend": True}})
    world.settle()
    world.run_pods()
    world.patch(JOB, {"spec": {"suspend": False}})
    world.rest()
    assert world.own.attempt == 2
    assert world.alive("learner") == ["job-learner-2-0", "job-learner-2-1"]


def test_a_broken_gang_is_not_asked_to_save() -> None:
    world = running()
    world.patch(JOB, {"spec": {"suspend": True}})
    world.kill("learner", signal=9)
    world.settle()
    assert all(p.leaving for p in world.pods())
    world.patch(JOB, {"spec": {"suspend": False}})
    world.rest()
    assert world.own.attempt == 2


def test_an_outcome_completes_the_job_once_the_planner_has_left() -> None:
    world = running()
    world.progress(step=10, outcome="complete", reason="done", message="10 steps")
    world.settle()
    assert not world.own.ended
    world.kill("planner", code=0)
    world.rest()
    assert world.own.holds("Complete")
    assert world.own.completion_time
    assert world.pods() == []


def test_a_planner_that_leaves_without_an_outcome_is_started_again() -> None:
    world = running()
    world.kill("planner", code=0)
    world.rest()
    assert not world.own.ended
    assert world.alive("planner") == ["job-planner-1-1"]


def test_a_planner_that_gives_up_fails_the_job_in_its_own_words() -> None:
    world = running()
    world.progress(outcome="failed", reason="EmptyDataset", message="no row fits")
    world.kill("planner", code=1)
    world.rest()
    failed = world.own.condition("Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("TrainingFailed", "EmptyDataset: no row fits")


def test_cancelling_ends_the_job_for_good() -> None:
    world = running()
    world.patch(JOB, {"metadata": {"annotations": {labels.CANCEL: "true"}}})
    world.rest()
    assert world.reason("Failed") == "Cancelled"
    assert world.own.phase == "Cancelled"
    world.patch(JOB, {"metadata": {"annotations": {labels.CANCEL: None}}})
    world.rest()
    assert world.pods() == []


def test_a_suspended_job_can_be_cancelled() -> None:
    world = running(a_job(suspend=True))
    world.patch(JOB, {"metadata": {"annotations": {labels.CANCEL: "true"}}})
    world.rest()
    assert world.own.phase == "Cancelled"


def test_a_deleted_job_goes_after_its_pods() -> None:
    world = running()
    world.delete(JOB)
    world.settle()
    assert world.job is not None
    assert all(pod.leaving for pod in world.pods())
    world.rest()
    assert world.table.objects == {}
    assert all(world.held.values())


def test_a_job_whose_finalizer_was_torn_off_leaves_no_orphan() -> None:
    world = running()
    world.patch(JOB, {"metadata": {"finalizers": []}})
    world.delete(JOB)
    world.rest()
    assert world.table.objects == {}
    assert len(world.held) == 6
    assert all(world.held.values())


def test_a_job_deleted_before_the_first_look_is_gone() -> None:
    world = World()
    assert world.job is not None
    assert JOB_FINALIZER not in world.job.metadata.finalizers
    world.delete(JOB)
    world.settle()
    assert world.table.objects == {}
