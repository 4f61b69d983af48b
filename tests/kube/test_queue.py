"""A job in a queue: held back until it is admitted, its gang whole, its actors one by one."""

from __future__ import annotations

import pytest

from tests.worlds.kueue import GROUP, PRIORITY, QUEUE, Kueue
from tests.worlds.platform import ALL, Platform

pytestmark = pytest.mark.kube
RANKS = ["job-learner-1-0", "job-learner-1-1"]


@pytest.fixture
async def kueue(scene: Platform) -> Kueue:
    """Kueue, and a job that is in its queue."""
    queue = Kueue(scene)
    await queue.install()
    await scene.submit()
    marks = {QUEUE: "team-a", PRIORITY: "training"}
    await scene.admin.patch("RLHFJob", scene.namespace, "job", {"metadata": {"labels": marks}})
    return queue


async def why(scene: Platform) -> str:
    found = (await scene.status()).get("conditions", ())
    return next((c["reason"] for c in found if c["type"] == "Running"), "")


async def all_wait(scene: Platform, kueue: Kueue) -> None:
    async def waiting() -> bool:
        return await kueue.waiting() == ALL

    await scene.eventually(waiting)


async def test_a_queued_job_waits_for_its_quota_and_says_so(scene: Platform, kueue: Kueue) -> None:
    async def told() -> bool:
        return await why(scene) == "WaitingForQuota"

    async with scene.operator():
        await all_wait(scene, kueue)
        await scene.eventually(told)
        assert scene.kubelet.started == []
        assert await kueue.admit() == ALL
        await scene.until("Running")


async def test_the_gang_is_one_group_and_everybody_else_is_alone(
    scene: Platform, kueue: Kueue
) -> None:
    async with scene.operator():
        await all_wait(scene, kueue)
        found = await scene.kubelet.pods()
        groups = {name: pod["metadata"]["labels"].get(GROUP) for name, pod in found.items()}
        assert {name for name, group in groups.items() if group == "job-learner-1"} == set(RANKS)
        assert {group for name, group in groups.items() if name not in RANKS} == {None}
        assert await kueue.admit(lambda name: name == RANKS[0]) == []
        assert await kueue.admit(lambda name: name in RANKS) == RANKS


async def test_a_job_runs_with_the_actors_that_have_quota(scene: Platform, kueue: Kueue) -> None:
    async with scene.operator():
        await all_wait(scene, kueue)
        await kueue.admit(lambda name: name != "job-decode-1")
        await scene.until("Running")
        assert await kueue.waiting() == ["job-decode-1"]
        assert "job-decode-1" not in scene.kubelet.started


async def test_an_actor_that_is_preempted_waits_again_and_the_job_goes_on(
    scene: Platform, kueue: Kueue
) -> None:
    async def queues_again() -> bool:
        return await kueue.waiting() == ["job-decode-2"]

    async with scene.operator():
        await all_wait(scene, kueue)
        await kueue.admit()
        await scene.until("Running")
        await scene.report(step=1)
        await kueue.preempt("job-decode-1")
        await scene.eventually(queues_again)
        assert await scene.holds("Running")
        assert (await scene.status()).get("failures", 0) == 0


async def test_a_suspended_job_leaves_nothing_in_the_queue(scene: Platform, kueue: Kueue) -> None:
    async with scene.operator():
        await all_wait(scene, kueue)
        await scene.change({"suspend": True})
        await scene.until("Suspended")
        assert await scene.kubelet.pods() == {}
        await scene.change({"suspend": False})

        async def next_attempt() -> bool:
            return "job-learner-2-0" in await kueue.waiting()

        await scene.eventually(next_attempt)
