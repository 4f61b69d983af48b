"""REST over a real API server: one truth, one policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from ebbtide import logs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_kubernetes import ApiReviews, ApiTrials
from ebbtide.testing.blobs import FakeBlobs
from services.gateway.app import build
from services.gateway.app.doors import KubernetesDoor
from services.gateway.settings import GatewaySettings
from tests.worlds.gateway import a_job, key
from tests.worlds.kube import Answer, ControlPlane
from tests.worlds.platform import SYSTEM, Platform

pytestmark = pytest.mark.kube
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@asynccontextmanager
async def gateway(scene: Platform) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway with its own account's rights, for the scene's namespace."""
    token = scene.plane.token(SYSTEM, "ebbtide-gateway")
    async with scene.plane.cluster(token=token, manager="ebbtide-gateway") as cluster:
        settings = GatewaySettings(
            blobs_url="memory:///", check_paths=False, namespace=scene.namespace, poll_seconds=0.1
        )
        app = build(
            settings=settings,
            cluster=cluster,
            blobs=FakeBlobs(),
            clock=SystemClock(),
            registry=CollectorRegistry(),
            log=logs.setup("error"),
            door=KubernetesDoor(
                reviews=ApiReviews(api=cluster.api, clock=SystemClock()),
                namespace=scene.namespace,
            ),
            closing=asyncio.Event(),
            trials=ApiTrials(api=cluster.api),
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://g") as client:
            yield client


def person(plane: ControlPlane, namespace: str, name: str, role: str) -> dict[str, str]:
    """The header of somebody who has a cluster role in the namespace."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    plane.call("POST", accounts, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    plane.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    return {"Authorization": f"Bearer {plane.token(namespace, name)}"}


@pytest.fixture
def anne(scene: Platform) -> dict[str, str]:
    """Somebody who may edit jobs in this namespace."""
    return person(scene.plane, scene.namespace, "anne", "edit")


@pytest.fixture(autouse=True)
async def aggregated(scene: Platform) -> None:
    """Kubernetes' own roles hold our rights once its controller has put them together."""

    async def holds() -> bool:
        role = await asyncio.to_thread(scene.plane.call, "GET", f"{RBAC}/clusterroles/edit")
        return any("rlhf.ebbtide.dev" in rule.get("apiGroups", ()) for rule in role["rules"] or ())

    await scene.eventually(holds)


async def test_a_job_made_by_rest_is_an_object(scene: Platform, anne: dict[str, str]) -> None:
    async with gateway(scene) as client:
        answer = await client.post("/v1/jobs", json=a_job("mine"), headers=anne | dict(key()))
        assert answer.status_code == 201
    printed = scene.plane.kubectl("get", "rlhf", "mine", "-n", scene.namespace, "-o", "name")
    assert printed == "rlhfjob.rlhf.ebbtide.dev/mine\n"


async def test_a_job_made_by_kubectl_shows_in_rest(scene: Platform, anne: dict[str, str]) -> None:
    await scene.submit("theirs")
    async with gateway(scene) as client:
        listed = (await client.get("/v1/jobs", headers=anne)).json()["items"]
        assert [job["metadata"]["name"] for job in listed] == ["theirs"]
        one = await client.get("/v1/jobs/theirs", headers=anne)
        assert one.json()["spec"]["decode"]["slots"] == 64  # a default of the schema


async def test_the_same_key_gives_the_first_answer_again(
    scene: Platform, anne: dict[str, str]
) -> None:
    async with gateway(scene) as client:
        both = [
            await client.post("/v1/jobs", json=a_job(None), headers=anne | dict(key("k")))
            for _ in range(2)
        ]
    assert [one.status_code for one in both] == [201, 201]
    assert both[1].headers["Idempotent-Replayed"] == "true"
    assert len((await scene.admin.list("RLHFJob", scene.namespace))[0]) == 1


async def test_a_viewer_looks_and_changes_nothing(scene: Platform) -> None:
    viewer = person(scene.plane, scene.namespace, "bob", "view")
    await scene.submit("theirs")
    async with gateway(scene) as client:
        assert (await client.get("/v1/jobs/theirs", headers=viewer)).status_code == 200
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/v1/jobs", {"json": a_job("x"), "headers": viewer | dict(key())}),
            ("POST", "/v1/jobs/theirs/suspend", {"headers": viewer}),
            ("DELETE", "/v1/jobs/theirs?force=true", {"headers": viewer}),
        ]
        for method, path, more in asked:
            assert (await client.request(method, path, **more)).status_code == 403


async def test_rights_end_at_the_namespace(scene: Platform) -> None:
    elsewhere = scene.plane.namespace()
    stranger = person(scene.plane, elsewhere, "eve", "edit")
    async with gateway(scene) as client:
        assert (await client.get("/v1/jobs", headers=stranger)).status_code == 403


async def test_a_token_that_nobody_gave_is_refused(scene: Platform) -> None:
    async with gateway(scene) as client:
        answer = await client.get("/v1/jobs", headers={"Authorization": "Bearer made-up"})
        assert answer.status_code == 401


async def test_suspend_and_delete_reach_the_object(scene: Platform, anne: dict[str, str]) -> None:
    await scene.submit("theirs")
    async with gateway(scene) as client:
        assert (await client.post("/v1/jobs/theirs/suspend", headers=anne)).status_code == 202
        job = await scene.admin.get("RLHFJob", scene.namespace, "theirs")
        assert job.spec["suspend"] is True
        gone = await client.delete("/v1/jobs/theirs?force=true", headers=anne)
        assert gone.status_code == 204
        assert (await client.get("/v1/jobs/theirs", headers=anne)).status_code == 404


async def test_what_the_api_server_refuses_is_a_problem_with_a_pointer(
    scene: Platform, anne: dict[str, str]
) -> None:
    secret = a_job("leaky", model={"uri": "s3://key:secret@bucket/model"})
    async with gateway(scene) as client:
        answer = await client.post("/v1/jobs", json=secret, headers=anne | dict(key()))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/spec/model")
    assert "no credentials" in answer.json()["detail"]


async def test_a_change_of_an_older_version_is_a_failed_precondition(
    scene: Platform, anne: dict[str, str]
) -> None:
    await scene.submit("theirs")
    async with gateway(scene) as client:
        etag = (await client.get("/v1/jobs/theirs", headers=anne)).headers["ETag"]
        await scene.change({"seed": 5}, "theirs")
        stale = anne | {"If-Match": etag}
        assert (await client.post("/v1/jobs/theirs/suspend", headers=stale)).status_code == 412


async def test_the_events_of_a_job_show_what_the_operator_told(
    scene: Platform, anne: dict[str, str]
) -> None:
    async with scene.operator(), gateway(scene) as client:
        await scene.submit()
        await scene.until("Running")
        await scene.eventually(lambda: told(client, anne))


async def told(client: httpx.AsyncClient, headers: dict[str, str]) -> bool:
    events = (await client.get("/v1/jobs/job/events", headers=headers)).json()["items"]
    return "PlannerStarted" in {event["reason"] for event in events}


def templated(**spec: Any) -> dict[str, Any]:
    document = a_job("mine")
    document["spec"]["decode"] = {"podTemplate": {"spec": spec}}
    return document


@pytest.mark.parametrize("path", ["/v1/jobs:validate", "/v1/jobs"])
async def test_a_template_that_would_make_no_pod_is_refused_before_the_job_is_taken(
    scene: Platform, anne: dict[str, str], path: str
) -> None:
    odd = templated(tolerations=[{"key": "a", "operator": "Sometimes"}])
    async with gateway(scene) as client:
        answer = await client.post(path, json=odd, headers=anne | dict(key()))
    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert fault["pointer"] == "/spec/decode/podTemplate/spec/tolerations/0/operator"
    assert "Sometimes" in fault["detail"]
    assert (await scene.admin.list("RLHFJob", scene.namespace))[0] == []


async def test_a_template_is_tried_out_and_leaves_no_pod(
    scene: Platform, anne: dict[str, str]
) -> None:
    good = templated(tolerations=[{"key": "a", "operator": "Exists"}])
    async with gateway(scene) as client:
        answer = await client.post("/v1/jobs:validate", json=good, headers=anne)
    assert answer.status_code == 200
    assert await scene.kubelet.pods() == {}


async def test_the_gateway_tries_pods_out_and_makes_none(scene: Platform) -> None:
    token = scene.plane.token(SYSTEM, "ebbtide-gateway")
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    container = {"name": "main", "image": "i"}
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [container]}}

    def answers() -> str:
        try:
            return str(scene.plane.call("POST", path, pod, token=token))
        except Answer as answer:
            return answer.message

    async def denied() -> bool:
        return "makes none" in await asyncio.to_thread(answers)

    await scene.eventually(denied)
    assert scene.plane.call("POST", f"{path}?dryRun=All", pod, token=token)["kind"] == "Pod"
