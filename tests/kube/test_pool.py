"""The decode pool: exactly the pods that are named go, whoever scales."""

from __future__ import annotations

import pytest

from tests.worlds.platform import Platform

pytestmark = pytest.mark.kube


async def has(scene: Platform, *numbers: int) -> bool:
    wanted = sorted(f"job-decode-{n}" for n in numbers)
    return await scene.kubelet.names("decode") == wanted


async def has_fresh(scene: Platform, count: int, *, used: set[int]) -> bool:
    """So many actors with unused numbers; a pass that breaks off after it noted them skips some."""
    names = set(await scene.kubelet.names("decode"))
    return len(names) == count and not names & {f"job-decode-{n}" for n in used}


async def test_exactly_the_named_actors_go(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(decode={"replicas": 4})
        await scene.until("Running")
        await scene.eventually(lambda: has(scene, 0, 1, 2, 3))
        async with scene.planner() as planner:
            change = {"replicas": 2, "release": ["job-decode-0", "job-decode-2"]}
            await planner.patch("DecodePool", scene.namespace, "job", {"spec": change})
        await scene.eventually(lambda: has(scene, 1, 3))
        assert len(scene.kubelet.started) == 8


async def test_people_scale_by_the_scale_subresource_and_nobody_turns_it_back(
    scene: Platform,
) -> None:
    async with scene.operator() as operator:
        await scene.submit()
        await scene.until("Running")
        scene.plane.kubectl("scale", "dpool", "job", "--replicas=4", "-n", scene.namespace)
        await scene.eventually(lambda: has(scene, 0, 1, 2, 3))
        for job in operator.cache.jobs():
            operator._queue.put(job)
        await scene.eventually(lambda: counted(scene, 4))
        pool = await scene.admin.get("DecodePool", scene.namespace, "job")
        assert pool.spec["replicas"] == 4


async def test_a_foreign_edit_of_the_replicas_is_reported(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        change = ("-p", '{"spec":{"replicas":3}}', "--type=merge", "--field-manager=argocd")
        scene.plane.kubectl("patch", "dpool", "job", "-n", scene.namespace, *change)
        await scene.eventually(lambda: names_whoever_wrote(scene, "argocd"))
        scene.plane.kubectl("scale", "dpool", "job", "--replicas=2", "-n", scene.namespace)
        await scene.eventually(lambda: is_whole(scene))


async def names_whoever_wrote(scene: Platform, who: str) -> bool:
    conditions = (await scene.status())["conditions"]
    degraded = next(c for c in conditions if c["type"] == "Degraded")
    return degraded["reason"] == "ForeignEdit" and who in degraded["message"]


async def is_whole(scene: Platform) -> bool:
    return not await scene.holds("Degraded")


async def test_a_pool_goes_to_zero_and_comes_back(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(planner={"scaling": "elastic"})
        await scene.until("Running")
        async with scene.planner() as planner:
            place = ("DecodePool", scene.namespace, "job")
            await planner.patch(*place, {"spec": {"replicas": 0}})
            await scene.eventually(lambda: has(scene))
            assert await scene.holds("Running")
            await planner.patch(*place, {"spec": {"replicas": 2, "release": []}})
            await scene.eventually(lambda: has_fresh(scene, 2, used={0, 1}))


async def test_an_actor_that_hands_over_is_given_its_time(scene: Platform) -> None:
    scene.kubelet.stubborn = {"job-decode-1"}
    async with scene.operator():
        await scene.submit(decode={"drainSeconds": 45.0})
        await scene.until("Running")
        async with scene.planner() as planner:
            change = {"replicas": 1, "release": ["job-decode-1"]}
            await planner.patch("DecodePool", scene.namespace, "job", {"spec": change})
        await scene.eventually(lambda: has(scene, 0))
        leaving = (await scene.kubelet.pods())["job-decode-1"]["metadata"]
        assert leaving["deletionGracePeriodSeconds"] == 45
        await scene.eventually(lambda: drains(scene, 1))
        scene.kubelet.stubborn = set()
        await scene.eventually(lambda: drains(scene, 0))


async def test_a_pool_without_room_in_the_quota_waits_for_it(scene: Platform) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "5"}},
        "status": {"hard": {"pods": "5"}, "used": {"pods": "0"}},
    }
    path = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    made = scene.plane.call("POST", path, quota)
    scene.plane.merge(f"{path}/few/status", {"status": quota["status"]})
    assert made["spec"]["hard"] == {"pods": "5"}
    async with scene.operator():
        await scene.submit()
        await scene.eventually(lambda: number(scene, 5))
        assert not await scene.holds("Failed")
        scene.plane.call("DELETE", f"{path}/few")
        await scene.until("Running")
        await scene.eventually(lambda: number(scene, 6))


async def counted(scene: Platform, ready: int) -> bool:
    pool = await scene.admin.get("DecodePool", scene.namespace, "job")
    return pool.status.get("readyReplicas") == ready


async def drains(scene: Platform, number: int) -> bool:
    pool = await scene.admin.get("DecodePool", scene.namespace, "job")
    return pool.status.get("drainingReplicas", 0) == number


async def number(scene: Platform, pods: int) -> bool:
    return len(await scene.kubelet.pods()) == pods
