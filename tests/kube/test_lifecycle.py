"""The operator on a real API server, with the rights of its own account."""

from __future__ import annotations

import pytest

from ebbtide import labels
from ebbtide.objects import rfc3339
from tests.worlds.platform import ALL, Platform

pytestmark = pytest.mark.kube


async def test_a_job_is_brought_up(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        assert await scene.kubelet.names() == ALL
        await scene.eventually(lambda: all_ready(scene))
        status = await scene.status()
        assert (status["phase"], status["reason"], status["attempt"]) == (
            "Running",
            "RolesReady",
            1,
        )
        events, _ = await scene.admin.list("Event", scene.namespace, {labels.JOB: "job"})
        assert {"AttemptStarted", "PlannerStarted", "RolesReady"} <= {
            event.spec["reason"] for event in events
        }


async def test_what_belongs_to_a_job_is_owned_and_labelled(scene: Platform) -> None:
    async with scene.operator():
        job = await scene.submit()
        await scene.until("Running")
        pool = await scene.admin.get("DecodePool", scene.namespace, "job")
        assert pool.metadata.owner_references[0].uid == job.metadata.uid
        for name, pod in (await scene.kubelet.pods()).items():
            meta = pod["metadata"]
            owner = pool if "decode" in name else job
            assert [o["uid"] for o in meta["ownerReferences"]] == [owner.metadata.uid]
            assert meta["labels"][labels.JOB_UID] == job.metadata.uid
            assert meta["labels"][labels.ATTEMPT] == "1"


async def test_a_job_that_completes_frees_every_pod_for_good(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        await scene.report(outcome="complete", message="all steps are done", step=10)
        await scene.kubelet.end("job-planner-1-0", 0, reason="Completed")
        await scene.until("Complete")
        await scene.eventually(lambda: no_pods(scene))
        started = len(scene.kubelet.started)
        await scene.change({"suspend": True})
        await scene.change({"suspend": False, "seed": 7})
        job = await scene.admin.get("RLHFJob", scene.namespace, "job")
        await scene.eventually(lambda: observed(scene, job.metadata.generation))
        assert await scene.holds("Complete")
        assert len(scene.kubelet.started) == started


async def test_suspending_frees_everything_and_resuming_starts_the_next_attempt(
    scene: Platform,
) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        await scene.change({"suspend": True})
        await scene.until("Suspended")
        await scene.eventually(lambda: no_pods(scene))
        await scene.change({"suspend": False})
        await scene.until("Running")
        assert (await scene.status())["attempt"] == 2
        assert await scene.kubelet.names("learner") == ["job-learner-2-0", "job-learner-2-1"]


async def test_a_deleted_job_leaves_nothing_behind(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        assert len(await scene.left()) == 12
        await scene.delete()
        await scene.eventually(lambda: nothing_left(scene))
    # How long each pod was held, and that the job is over.
    assert len(scene.blobs.objects) == len(ALL) + 1


async def test_a_job_that_is_deleted_while_no_operator_lives_waits_for_the_next(
    scene: Platform,
) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
    await scene.delete()
    assert (await scene.admin.get("RLHFJob", scene.namespace, "job")).metadata.deletion_timestamp
    async with scene.operator():
        await scene.eventually(lambda: nothing_left(scene))


async def test_a_rank_that_crashes_starts_the_gang_anew(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        await scene.kubelet.end("job-learner-1-1", 1, message="Traceback\nRuntimeError: nan")
        await scene.eventually(lambda: attempt_runs(scene, 2))
        status = await scene.status()
        failure = status["lastFailure"]
        assert (failure["pod"], failure["exitCode"]) == ("job-learner-1-1", 1)
        assert failure["message"].endswith("RuntimeError: nan")
        assert (status["failures"], status["restarts"]) == (1, 1)
        assert await scene.kubelet.names("decode") == ["job-decode-0", "job-decode-1"]


async def test_an_evicted_actor_is_replaced_and_counts_against_nobody(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(backoffLimit=0)
        await scene.until("Running")
        await scene.kubelet.end("job-decode-0", 137)
        await scene.eventually(lambda: has(scene, ["job-decode-1", "job-decode-2"]))
        status = await scene.status()
        assert status["lastFailure"]["signal"] == 9
        assert (status.get("failures", 0), status["attempt"]) == (0, 1)


async def test_a_job_that_fails_too_often_fails_with_the_last_words(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(backoffLimit=0)
        await scene.until("Running")
        await scene.kubelet.end("job-learner-1-0", 1, message="ValueError: no such layer")
        await scene.until("Failed")
        await scene.eventually(lambda: no_pods(scene))
        failed = next(c for c in (await scene.status())["conditions"] if c["type"] == "Failed")
        assert failed["reason"] == "BackoffLimitExceeded"
        assert failed["message"].endswith("ValueError: no such layer")


async def test_a_planner_that_dies_alone_is_replaced_in_the_same_attempt(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        await scene.kubelet.end("job-planner-1-0", 139)
        await scene.eventually(lambda: has(scene, ["job-planner-1-1"], "planner"))
        assert await scene.kubelet.names("learner") == ["job-learner-1-0", "job-learner-1-1"]


async def test_pods_that_cannot_be_placed_fail_the_job_at_its_deadline(scene: Platform) -> None:
    scene.kubelet.held = {"job-learner-1-1"}
    async with scene.operator():
        await scene.submit(deadlines={"schedulingSeconds": 2.0})
        await scene.until("Failed")
        failed = next(c for c in (await scene.status())["conditions"] if c["type"] == "Failed")
        assert failed["reason"] == "SchedulingDeadlineExceeded"
        await scene.eventually(lambda: no_pods(scene))


async def test_an_invalid_job_is_refused_in_its_status(scene: Platform) -> None:
    async with scene.operator():
        reward = {"components": [{"type": "regex", "name": "r", "pattern": "("}]}
        await scene.submit(reward=reward)
        await scene.eventually(lambda: is_in_phase(scene, "Pending", "SpecInvalid"))
        accepted = (await scene.status())["conditions"][0]
        assert "not a regular expression" in accepted["message"]
        assert await scene.kubelet.pods() == {}


async def test_a_step_of_progress_shows_when_it_was_made(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        await scene.report(step=3, totalSteps=10, lastProgressTime=rfc3339(4e9))
        await scene.eventually(lambda: has_run(scene))
        assert (await scene.status())["progress"]["step"] == 3


# --- what is waited for ---------------------------------------------------------------------------


async def all_ready(scene: Platform) -> bool:
    counted = {role["name"]: role["ready"] for role in (await scene.status())["roles"]}
    return counted == {"planner": 1, "learner": 2, "decode": 2, "reward": 1}


async def no_pods(scene: Platform) -> bool:
    return await scene.kubelet.pods() == {}


async def nothing_left(scene: Platform) -> bool:
    return await scene.left() == []


async def has(scene: Platform, names: list[str], part: str = "decode") -> bool:
    return await scene.kubelet.names(part) == names


async def attempt_runs(scene: Platform, attempt: int) -> bool:
    return (await scene.status())["attempt"] == attempt and await scene.holds("Running")


async def observed(scene: Platform, generation: int) -> bool:
    return int((await scene.status())["observedGeneration"]) >= generation


async def is_in_phase(scene: Platform, phase: str, reason: str) -> bool:
    status = await scene.status()
    return (status.get("phase"), status.get("reason")) == (phase, reason)


async def has_run(scene: Platform) -> bool:
    return bool((await scene.status()).get("runningTime"))
