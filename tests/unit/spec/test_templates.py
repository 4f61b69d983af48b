"""What a job may add to its pods, and what it may not."""

from typing import Any

import pytest

from ebbtide.spec.check import Invalid, check
from ebbtide.spec.templates import fence
from ebbtide.testing.jobs import a_spec

FINE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    "spec": {
        "nodeSelector": {"zone": "b"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        ],
        "containers": [
            {
                "name": "main",
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                ],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
    },
}


def main(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


SECRET = {"secretKeyRef": {"name": "theirs", "key": "k"}}
REFUSED: dict[str, dict[str, Any]] = {
    "spec.volumes.h.hostPath": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
    "spec.volumes.s.secret": {"volumes": [{"name": "s", "secret": {"secretName": "theirs"}}]},
    "spec.volumes.p.projected": {"volumes": [{"name": "p", "projected": {"sources": []}}]},
    "spec.volumes.c.csi": {"volumes": [{"name": "c", "csi": {"driver": "d"}}]},
    "spec.serviceAccountName": {"serviceAccountName": "admin"},
    "spec.automountServiceAccountToken": {"automountServiceAccountToken": True},
    "spec.hostNetwork": {"hostNetwork": True},
    "spec.hostPID": {"hostPID": True},
    "spec.nodeName": {"nodeName": "n"},
    "spec.securityContext": {"securityContext": {"runAsUser": 0}},
    "spec.initContainers": {"initContainers": [{"name": "a"}]},
    "spec.ephemeralContainers": {"ephemeralContainers": [{"name": "a"}]},
    "spec.imagePullSecrets": {"imagePullSecrets": [{"name": "theirs"}]},
    "spec.priorityClassName": {"priorityClassName": "system-node-critical"},
    "spec.containers.other:": {"containers": [{"name": "other"}]},
    "spec.containers.main.securityContext": main(securityContext={"privileged": True}),
    "spec.containers.main.image": main(image="mine"),
    "spec.containers.main.command": main(command=["sh"]),
    "spec.containers.main.envFrom": main(envFrom=[{"secretRef": {"name": "theirs"}}]),
    "spec.containers.main.env.A.valueFrom.secretKeyRef": main(
        env=[{"name": "A", "valueFrom": SECRET}]
    ),
    "spec.containers.main.env.EBBTIDE_SPEC": main(env=[{"name": "EBBTIDE_SPEC", "value": "x"}]),
    "spec.containers.?:": {"containers": "main"},
}


def test_what_places_and_feeds_a_pod_is_let_through() -> None:
    assert fence(FINE) == ""


@pytest.mark.parametrize("where", REFUSED)
def test_what_reaches_beyond_the_job_is_refused_by_name(where: str) -> None:
    assert fence({"spec": REFUSED[where]}).startswith(where)


@pytest.mark.parametrize("key", ["rlhf.ebbtide.dev/job", "kueue.x-k8s.io/queue-name"])
def test_labels_of_the_operator_are_refused(key: str) -> None:
    assert fence({"metadata": {"labels": {key: "x"}}}) == f"metadata.labels.{key} is the operator's"


@pytest.mark.parametrize("odd", [{"spec": []}, {"status": {}}, {"metadata": {"name": "a"}}])
def test_what_is_no_template_is_refused(odd: dict[str, Any]) -> None:
    assert fence(odd)


def test_a_template_of_any_size_is_refused() -> None:
    assert fence({"metadata": {"labels": {"a": "x" * 20_000}}}).startswith("more than")


def test_the_refusal_of_a_job_points_at_its_template() -> None:
    spec = a_spec(decode={"podTemplate": {"spec": {"hostNetwork": True}}})
    job = {"apiVersion": "rlhf.ebbtide.dev/v1alpha1", "kind": "RLHFJob"}
    with pytest.raises(Invalid) as caught:
        check({**job, "metadata": {"name": "a"}, "spec": spec})
    assert caught.value.faults[0].pointer == "/spec/decode/podTemplate"
    assert "hostNetwork is not for jobs to set" in caught.value.faults[0].detail
