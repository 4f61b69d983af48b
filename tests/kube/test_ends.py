"""Nodes that go, jobs that expire, restarts that are asked for: on a real API server."""

from __future__ import annotations

import pytest

from ebbtide.spec import API_VERSION
from ebbtide_operator.core.site import INTERRUPTION_TAINTS
from tests.worlds.platform import Platform

pytestmark = pytest.mark.kube


async def test_actors_of_a_node_that_is_about_to_go_hand_over(scene: Platform) -> None:
    node = f"spot-{scene.namespace}"
    scene.plane.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    scene.kubelet.places = {"job-decode-1": node}
    scene.kubelet.stubborn = {"job-decode-1"}
    async with scene.operator():
        await scene.submit(backoffLimit=0, decode={"drainSeconds": 45.0})
        await scene.until("Running")
        taint = {"key": INTERRUPTION_TAINTS[0], "effect": "NoSchedule"}
        scene.plane.merge(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
        await scene.eventually(lambda: has(scene, ["job-decode-0", "job-decode-2"]))
        leaving = (await scene.kubelet.pods())["job-decode-1"]["metadata"]
        assert leaving["deletionGracePeriodSeconds"] == 45
        status = await scene.status()
        assert (status["lastFailure"]["reason"], status["attempt"]) == ("Interrupted", 1)
        scene.kubelet.stubborn = set()


async def test_a_job_expires_when_its_time_after_the_end_has_passed(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(ttlSecondsAfterFinished=2.0)
        await scene.until("Running")
        await scene.report(outcome="complete", message="all steps are done", step=10)
        await scene.kubelet.end("job-planner-1-0", 0, reason="Completed")
        await scene.eventually(lambda: nothing_left(scene))


async def test_a_new_restart_id_starts_the_next_attempt_once(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit(restart={"id": "first"})
        await scene.until("Running")
        await scene.change({"restart": {"id": "second"}})
        await scene.eventually(lambda: restarted(scene, "second"))
        status = await scene.status()
        assert (status["attempt"], status.get("restarts", 0)) == (2, 0)


async def test_a_job_adds_to_its_pods_what_the_fence_lets_through(scene: Platform) -> None:
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"zone": "b"},
            "containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}],
        },
    }
    async with scene.operator():
        await scene.submit(decode={"podTemplate": template})
        await scene.until("Running")
        pod = (await scene.kubelet.pods())["job-decode-0"]
        assert pod["metadata"]["labels"]["team"] == "a"
        assert pod["spec"]["nodeSelector"] == {"zone": "b"}
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


async def test_a_runtime_says_how_the_pods_of_a_job_are_made(scene: Platform) -> None:
    name = f"r{scene.namespace}"
    path = f"/apis/{API_VERSION}/clusterrlhfruntimes"
    pools = {"gpu": {"nodeSelector": {"gpu": "h200"}, "resources": {"nvidia.com/gpu": "1"}}}
    runtime = {"metadata": {"name": name}, "spec": {"image": "ebbtide:theirs", "pools": pools}}
    async with scene.operator():
        await scene.submit(runtimeRef={"name": name}, decode={"pool": "gpu"})
        await scene.eventually(lambda: refused(scene, "NoRuntime"))
        head = {"apiVersion": API_VERSION, "kind": "ClusterRLHFRuntime"}
        scene.plane.call("POST", f"{path}?fieldValidation=Strict", head | runtime)
        await scene.until("Running")
        pod = (await scene.kubelet.pods())["job-decode-0"]
        assert pod["spec"]["nodeSelector"] == {"gpu": "h200"}
        main = pod["spec"]["containers"][0]
        assert (main["image"], main["resources"]["limits"]) == (
            "ebbtide:theirs",
            {"nvidia.com/gpu": "1"},
        )


async def refused(scene: Platform, reason: str) -> bool:
    return (await scene.status()).get("reason") == reason


async def test_a_template_that_makes_no_pod_is_told_in_the_status(scene: Platform) -> None:
    odd = {"spec": {"tolerations": [{"key": "a", "operator": "Sometimes"}]}}
    async with scene.operator():
        await scene.submit(decode={"podTemplate": odd})
        await scene.until("Degraded")
        told = next(c for c in (await scene.status())["conditions"] if c["type"] == "Degraded")
        assert (told["reason"], "Sometimes" in told["message"]) == ("PodsRefused", True)
        await scene.change({"decode": {"podTemplate": None}})
        await scene.until("Running")
        await scene.eventually(lambda: is_whole(scene))


async def is_whole(scene: Platform) -> bool:
    return not await scene.holds("Degraded")


async def has(scene: Platform, names: list[str]) -> bool:
    return await scene.kubelet.names("decode") == names


async def nothing_left(scene: Platform) -> bool:
    return await scene.left() == []


async def restarted(scene: Platform, asked: str) -> bool:
    return (await scene.status()).get("restartId") == asked and await scene.holds("Running")
