"""What the chart renders, judged by a real API server; and the end of an installation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ebbtide.adapters.clock import SystemClock
from ebbtide.errors import Refused
from ebbtide_operator.farewell import FarewellSettings, leave
from tests.worlds.chart import CHART, EVERYTHING, JOBS, PROFILES, STORE, SYSTEM, helm, rendered
from tests.worlds.kube import Answer, ControlPlane, open_definition
from tests.worlds.platform import Platform

pytestmark = pytest.mark.kube

MONITORS = (
    ("ServiceMonitor", "v1"),
    ("PodMonitor", "v1"),
    ("PrometheusRule", "v1"),
    ("ScrapeConfig", "v1alpha1"),
)
PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"} | {
    f"ValidatingAdmissionPolicy{suffix}": f"validatingadmissionpolic{ending}"
    for suffix, ending in (("", "ies"), ("Binding", "ybindings"))
}


@pytest.fixture(scope="module")
def plane(kubernetes: ControlPlane) -> Iterator[ControlPlane]:
    """With the namespaces of an installation and kinds of the Prometheus operator."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (SYSTEM, JOBS):
        kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        kubernetes.merge(f"/api/v1/namespaces/{name}", {"metadata": {"labels": restricted}})
    for kind, version in MONITORS:
        kubernetes.apply(open_definition(kind, group="monitoring.coreos.com", version=version))
    yield kubernetes
    free = {"pod-security.kubernetes.io/enforce": None}
    kubernetes.merge(f"/api/v1/namespaces/{SYSTEM}", {"metadata": {"labels": free}})


def path_of(one: dict[str, Any]) -> str:
    version, kind, meta = one["apiVersion"], one["kind"], one["metadata"]
    space = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    return f"{'/apis' if '/' in version else '/api'}/{version}/{space}{plural}/{meta['name']}"


def try_out(plane: ControlPlane, one: dict[str, Any]) -> str:
    """What the API server has against the object, if it were applied."""
    query = "?dryRun=All&fieldManager=helm&fieldValidation=Strict&force=true"
    try:
        plane.call("PATCH", path_of(one) + query, one, content_type="application/apply-patch+yaml")
    except Answer as answer:
        return f"{one['kind']} {one['metadata']['name']}: {answer}"
    return ""


def objects(which: str) -> list[dict[str, Any]]:
    return rendered(*EVERYTHING) if which == "everything" else rendered(profile=which)


@pytest.mark.parametrize("which", ["everything", *PROFILES])
async def test_the_api_server_accepts_everything(plane: ControlPlane, which: str) -> None:
    for _ in range(100):  # definitions take a moment to be served
        complaints = [await asyncio.to_thread(try_out, plane, one) for one in objects(which)]
        found = [complaint for complaint in complaints if complaint]
        if not any("404" in complaint for complaint in found):
            break
        await asyncio.sleep(0.2)
    assert found == []


def pods(which: str) -> list[dict[str, Any]]:
    """Every pod that the chart makes, as its controller would."""
    found = [one for one in objects(which) if one["kind"] == "Pod"]
    for one in objects(which):
        template = one.get("spec", {}).get("template") if one["kind"] != "PodMonitor" else None
        if template:
            name = one["metadata"]["name"]
            spec = {**template["spec"], "volumes": template["spec"].get("volumes", [])}
            for claim in one["spec"].get("volumeClaimTemplates", []):
                source = {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
                spec["volumes"] = [*spec["volumes"], {**claim["metadata"], **source}]
            meta = {**template["metadata"], "name": name, "namespace": SYSTEM}
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return found


@pytest.mark.parametrize("which", ["everything", "local"])
def test_every_pod_passes_the_restricted_standard(plane: ControlPlane, which: str) -> None:
    assert len(pods(which)) == 6
    assert [complaint for pod in pods(which) if (complaint := try_out(plane, pod))] == []


def test_a_pod_that_does_not_pass_is_refused(plane: ControlPlane) -> None:
    pod = pods("local")[1]
    loose = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    assert "violates PodSecurity" in try_out(plane, loose)


def test_only_operator_gateway_and_uninstalling_have_a_token() -> None:
    holding = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for pod in pods("everything")
        if pod["spec"]["automountServiceAccountToken"]
    }
    assert holding == {"operator", "gateway", "uninstall"}


def test_the_notes_name_what_is_off(plane: ControlPlane) -> None:
    loose = (STORE, "gateway.auth.mode=none", "gateway.insecure=true", "crds.install=false")
    words = ["install", "notes", str(CHART), "--dry-run=server", "--namespace", "default"]
    words += [word for setting in loose for word in ("--set", setting)]
    words += ["--set", "networkPolicy.enabled=false,rbac.create=false,jobs.createNamespace=false"]
    done = helm(*words, kubeconfig=str(plane.kubeconfig()))
    notes = done.stdout.partition("NOTES:")[2]
    for warning in ("! AUTHENTICATION", "! NETWORK POLICIES", "! RIGHTS", "- monitoring.rules"):
        assert warning in notes, done.stderr


async def test_uninstalling_is_refused_while_there_are_jobs(scene: Platform) -> None:
    await scene.submit()
    settings = FarewellSettings(cluster="kubernetes", namespace=scene.namespace)
    with pytest.raises(Refused, match=r"1 jobs are left \(job\).*uninstall.jobs=delete"):
        await leave(scene.admin, SystemClock(), settings)


async def test_uninstalling_leaves_no_finalizer_behind(scene: Platform) -> None:
    settings = FarewellSettings(
        cluster="kubernetes", namespace=scene.namespace, jobs="delete", poll_seconds=0.1
    )
    async with scene.operator():
        await scene.submit()
        await scene.until("Running")
        token = scene.plane.token(SYSTEM, "ebbtide-uninstall")
        async with scene.plane.cluster(token=token) as cluster:
            assert await leave(cluster, SystemClock(), settings) == 1
        await scene.eventually(lambda: _empty(scene))


async def _empty(scene: Platform) -> bool:
    return await scene.left() == []
