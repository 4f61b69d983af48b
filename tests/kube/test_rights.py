"""Who may do what: tried with the tokens that pods and people really have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from ebbtide.errors import Forbidden, Refused
from ebbtide.ports import Cluster
from tests.worlds.kube import Answer
from tests.worlds.platform import Platform

pytestmark = pytest.mark.kube


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(Forbidden):
        await call


async def test_a_planner_scales_its_own_pool_and_writes_its_own_status(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        async with scene.planner() as planner:
            place = (scene.namespace, "job")
            await planner.patch("DecodePool", *place, {"spec": {"replicas": 1}})
            await planner.patch_status("RLHFJob", *place, {"progress": {"step": 1}})
            await planner.get("RLHFJob", *place)
            assert len((await planner.list("Pod", scene.namespace))[0]) >= 5


async def test_a_planner_may_do_nothing_else(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.submit("other")
        await scene.until("Running")
        await scene.until("Running", "other")
        async with scene.planner() as planner:
            await _try_all(planner, scene.namespace)


async def _try_all(planner: Cluster, namespace: str) -> None:
    own, other = (namespace, "job"), (namespace, "other")
    await refused(planner.patch("DecodePool", *other, {"spec": {"replicas": 0}}))
    await refused(planner.patch_status("RLHFJob", *other, {"phase": "x"}))
    await refused(planner.get("RLHFJob", *other))
    await refused(planner.list("RLHFJob", namespace))
    await refused(planner.patch("RLHFJob", *own, {"spec": {"suspend": True}}))
    await refused(planner.patch_status("DecodePool", *own, {"replicas": 0}))
    await refused(planner.delete("RLHFJob", *own))
    await refused(planner.delete("Pod", namespace, "job-decode-0"))
    await refused(planner.list("Lease", namespace))
    await refused(planner.get("Role", namespace, "x"))


async def test_a_planner_writes_none_of_the_operators_fields(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        async with scene.planner() as planner:
            place = (scene.namespace, "job")
            await scene.eventually(lambda: _denied(planner, scene.namespace, {"phase": "x"}))
            conditions: list[dict[str, str]] = []
            for status in ({"attempt": 9}, {"conditions": conditions}, {"failures": 3}):
                assert await _denied(planner, scene.namespace, status)
            body: dict[str, Any] = {"metadata": {"ownerReferences": []}}
            with pytest.raises(Refused, match="replicas and release"):
                await planner.patch("DecodePool", *place, body)


async def _denied(planner: Cluster, namespace: str, status: Mapping[str, object]) -> bool:
    try:
        await planner.patch_status("RLHFJob", namespace, "job", status)
    except Refused as error:
        return "is the operator's" in error.detail
    return False


async def test_a_planner_cannot_move_its_pool_to_another_job(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        async with scene.planner() as planner:
            with pytest.raises(Refused, match="job cannot be changed"):
                await planner.patch("DecodePool", scene.namespace, "job", {"spec": {"job": "x"}})


async def test_no_pod_but_the_planner_has_a_token(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        pods = await scene.kubelet.pods()
        holding = [n for n, p in pods.items() if p["spec"]["automountServiceAccountToken"]]
        assert holding == ["job-planner-1-0"]


async def test_every_pod_passes_the_restricted_pod_security_standard(scene: Platform) -> None:
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    scene.plane.merge(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": enforce}})
    async with scene.operator():
        await scene.submit(prefill={"mode": "service"})
        await scene.until("Running")
        assert len(await scene.kubelet.names()) == 7


async def test_the_operator_cannot_give_more_than_it_has(scene: Platform) -> None:
    token = scene.plane.token("ebbtide-system", "ebbtide-operator")
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "greedy"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{scene.namespace}/roles"
    with pytest.raises(Answer, match="not currently held"):
        await asyncio.to_thread(scene.plane.call, "POST", path, body, token=token)
    with pytest.raises(Answer, match="forbidden"):
        await asyncio.to_thread(
            scene.plane.call, "GET", f"/api/v1/namespaces/{scene.namespace}/secrets", token=token
        )


async def test_the_owner_of_a_write_is_recorded(scene: Platform) -> None:
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        async with scene.planner() as planner:
            await planner.patch("DecodePool", scene.namespace, "job", {"spec": {"replicas": 3}})
        assert await replicas_writer(scene) == "ebbtide-planner"
        scene.plane.kubectl("scale", "dpool", "job", "--replicas=1", "-n", scene.namespace)
        assert await replicas_writer(scene) == "kubectl"


async def replicas_writer(scene: Platform) -> str:
    path = f"/apis/rlhf.ebbtide.dev/v1alpha1/namespaces/{scene.namespace}/decodepools/job"
    fields = (await asyncio.to_thread(scene.plane.call, "GET", path))["metadata"]["managedFields"]
    owners = [
        one["manager"]
        for one in fields
        if ("f:replicas" in one["fieldsV1"].get("f:spec", {}) and "subresource" not in one)
        or one.get("subresource") == "scale"
    ]
    return str(owners[-1])
