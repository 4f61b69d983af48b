"""One job, and everything around it taken away in turn: it completes, and no sample is lost or doubled."""

from __future__ import annotations

import json

import pytest

from ebbtide.client import Client
from tests.cluster.running import DEEP, Course, delete_pod, follow, judged, steps, submit, tiny
from tests.e2e.jobs import training
from tests.worlds.chart import JOBS, SYSTEM
from tests.worlds.cluster import Cluster, ready, until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]
STEPS, PROMPTS, GROUP = 20, 3, 4
"""Of a deep model's answers, so that the job outlasts what is done to it, on any machine."""


def evict(cluster: Cluster, name: str) -> None:
    """By the Eviction API, as a drain does."""
    meta = {"name": name, "namespace": JOBS}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{JOBS}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def one(cluster: Cluster, role: str) -> dict:
    """A pod of the role that serves."""

    def found() -> dict | None:
        return next((pod for pod in cluster.pods("disturbed", role) if ready(pod)), None)

    return until(found, seconds=180, what=f"a {role} that is ready")


def replaced(cluster: Cluster, component: str) -> None:
    """Delete the pods of a component, and wait until others serve."""
    chosen = f"app.kubernetes.io/component={component}"
    old = {pod["metadata"]["uid"] for pod in cluster.objects("pods", SYSTEM, chosen)}
    cluster.kubectl("delete", "pod", "-n", SYSTEM, "-l", chosen, "--wait=false", "--grace-period=1")
    until(
        lambda: any(
            ready(pod) and pod["metadata"]["uid"] not in old
            for pod in cluster.objects("pods", SYSTEM, chosen)
        ),
        seconds=180,
        what=f"another {component}",
    )


def further(client: Client, course: Course) -> None:
    """Wait for one more committed step of a job that goes on."""
    now = steps(follow(client, course, seconds=60, until=lambda _: True))
    job = follow(client, course, seconds=300, until=lambda job: job.terminal or steps(job) > now)
    assert not job.terminal, f"ended before all was taken from it: {job.message}"


def test_a_job_outlives_whatever_is_taken_from_it(installed: Cluster, client: Client) -> None:
    sizes = training(totalSteps=STEPS, promptsPerStep=PROMPTS, maxResponseTokens=96)
    actors = {"engine": "torch", "device": "cpu", "replicas": 2, "maxReplicas": 2}
    calm = {"scaling": "static", "migration": "none"}
    alone = {"mode": "colocated"}
    spec = tiny(model=DEEP, training=sizes, decode=actors, planner=calm, prefill=alone)
    course = submit(client, "disturbed", spec)
    further(client, course)
    delete_pod(installed, one(installed, "decode"))
    further(client, course)
    evict(installed, one(installed, "decode")["metadata"]["name"])
    further(client, course)
    delete_pod(installed, one(installed, "planner"), grace=0)
    further(client, course)
    replaced(installed, "operator")
    replaced(installed, "gateway")
    further(client, course)
    replaced(installed, "nats")
    ended = follow(client, course, seconds=600)
    assert ended.state == "Complete", ended.message
    verdict = judged(installed, course)
    assert verdict.faults() == {}
    assert verdict.accepted == STEPS * PROMPTS * GROUP
    assert verdict.abandoned == 0
