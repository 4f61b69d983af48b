"""What a pod of the API means here."""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.adapters.cluster_kubernetes.forms import Forms
from ebbtide.adapters.cluster_kubernetes.kinds import KINDS
from ebbtide_operator.core.failures import Fault, fault_of
from ebbtide_operator.podspec import PodView, view

START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def a_pod(status: dict[str, Any], **meta: Any) -> PodView:
    whole = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "u",
            "managedFields": [{}],
            **meta,
        },
        "spec": {
            "nodeName": "node-1",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "command": ["python"], "env": [{"name": "X"}]}],
        },
        "status": status,
    }
    forms = Forms(kinds=KINDS, render=None)
    return view(forms.read("Pod", msgspec.json.encode(whole)))


def over(code: int, reason: str = "Error", **status: Any) -> PodView:
    end = {"exitCode": code, "reason": reason, "startedAt": START, "finishedAt": END}
    container = {"name": "main", "state": {"terminated": end}}
    return a_pod({"phase": "Failed", "containerStatuses": [container], **status})


def running(**meta: Any) -> PodView:
    container = {"name": "main", "state": {"running": {"startedAt": START}}}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": START}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
    return a_pod(status, **meta)


def test_a_running_pod_is_ready_and_knows_its_node() -> None:
    pod = running()
    assert (pod.status.phase, pod.status.ready, pod.status.started_at) == ("Running", True, START)
    assert pod.spec.node_name == "node-1"
    assert pod.spec.env == {}


def test_a_pod_that_is_about_to_be_taken_away_says_why() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    container = {"name": "main", "state": {"running": {"startedAt": START}}}
    status = {"phase": "Running", "containerStatuses": [container], "conditions": [target]}
    assert a_pod(status).status.disrupted == "PreemptionByScheduler"
    assert running().status.disrupted == ""


def test_a_node_is_its_name_and_the_taints_that_keep_pods_away() -> None:
    taints = [{"key": "spot", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]
    whole = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": taints}}
    forms = Forms(kinds=KINDS, render=None)
    node = forms.read("Node", msgspec.json.encode({**whole, "status": {"images": [{}]}}))
    assert (node.metadata.name, node.metadata.labels) == ("n", {})
    assert node.spec == {"taints": ["spot"]}
    assert KINDS["Node"].path("default") == "/api/v1/nodes"


def test_an_exit_code_is_the_processes_own() -> None:
    pod = over(1)
    assert (pod.status.exit_code, pod.status.signal, pod.status.reason) == (1, None, "")
    assert pod.status.finished_at == END
    assert fault_of(pod) is Fault.OWN


def test_a_signal_is_the_infrastructures_fault() -> None:
    pod = over(137)
    assert (pod.status.exit_code, pod.status.signal) == (None, 9)
    assert fault_of(pod) is Fault.INFRASTRUCTURE


def test_a_kill_for_memory_is_the_jobs_own_fault() -> None:
    pod = over(137, "OOMKilled")
    assert (pod.status.reason, pod.status.exit_code) == ("OOMKilled", 137)
    assert fault_of(pod) is Fault.OWN


def test_a_program_that_cannot_be_started_is_the_jobs_own_fault() -> None:
    assert fault_of(over(128, "StartError")) is Fault.OWN


def test_an_eviction_is_named_and_counts_against_nobody() -> None:
    pod = a_pod({"phase": "Failed", "reason": "Evicted", "message": "disk", "startTime": START})
    assert (pod.status.reason, pod.status.message) == ("Evicted", "disk")
    assert pod.status.started_at == pod.status.finished_at == START
    assert fault_of(pod) is Fault.INFRASTRUCTURE


def test_a_disruption_explains_an_exit() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": END}
    assert over(143, conditions=[target]).status.reason == "Disrupted"


def test_what_a_pod_waits_for_is_told() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pulls = a_pod({"phase": "Pending", "containerStatuses": [{"name": "main", "state": waiting}]})
    assert (pulls.status.reason, pulls.status.message) == ("ImagePullBackOff", "no such image")
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}
    unplaced = a_pod({"phase": "Pending", "conditions": [full]})
    assert (unplaced.status.reason, unplaced.finished) == ("Unschedulable", False)


def test_the_deletion_is_told_by_when_it_came() -> None:
    pod = running(deletionTimestamp=END, deletionGracePeriodSeconds=30)
    assert pod.resource.metadata.deletion_timestamp == "2026-01-01T00:00:30.000000Z"
    assert (pod.leaving, pod.grace, pod.finished) == (True, 30.0, False)


def test_a_pod_deleted_by_force_is_lost_and_not_awaited() -> None:
    pod = running(deletionTimestamp=END, deletionGracePeriodSeconds=0)
    assert (pod.finished, pod.status.reason, pod.status.finished_at) == (True, "Lost", END)
    assert fault_of(pod) is Fault.INFRASTRUCTURE


def test_a_pod_of_a_lost_node_still_runs_as_far_as_anybody_knows() -> None:
    pod = a_pod({"phase": "Unknown"})
    assert not pod.finished


def test_a_cached_pod_is_small() -> None:
    kept = msgspec.json.encode(running(labels={f"l{n}": "v" for n in range(8)}).resource)
    assert len(kept) < 1024
