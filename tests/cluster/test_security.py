"""What the cluster itself refuses, and what is found nowhere."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from ebbtide.client import ApiError, Client
from tests.cluster.running import document, submit, tiny
from tests.worlds.chart import JOBS, SYSTEM
from tests.worlds.cluster import PERSON, Cluster, Document, ready, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
PROBE = """
import json, os, socket, ssl, urllib.error, urllib.request
found = {"token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"), "uid": os.getuid()}
try:
    open("/written", "w")
except OSError as error:
    found["root"] = error.strerror
host = "https://kubernetes.default.svc.cluster.local"
try:
    urllib.request.urlopen(host + "/api/v1/pods", context=ssl._create_unverified_context(), timeout=20)
except urllib.error.HTTPError as error:
    found["api"] = error.code
print(json.dumps(found))
"""


def with_template(role: str, **spec: Any) -> Document:
    base = tiny()
    return tiny(**{role: {**base[role], "podTemplate": {"spec": spec}}})


LOOSE: dict[str, dict[str, Any]] = {
    "hostPath": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
    "privileged": {
        "containers": [{"name": "main", "securityContext": {"privileged": True}}],
    },
    "another's secret": {
        "volumes": [{"name": "s", "secret": {"secretName": "ebbtide-credentials"}}]
    },
    "host network": {"hostNetwork": True},
    "another account": {"serviceAccountName": "default"},
}


@pytest.mark.parametrize("what", LOOSE)
def test_a_job_that_asks_for_more_is_refused(client: Client, what: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.submit(document("loose", with_template("decode", **LOOSE[what])))
    assert refused.value.status == 422
    assert "podTemplate" in str(refused.value.problem.errors)


def test_what_rest_refuses_makes_no_pod_by_kubectl_either(installed: Cluster) -> None:
    loose = document("loose", with_template("decode", **LOOSE["hostPath"]))
    installed.apply(loose | {"metadata": {"name": "loose", "namespace": JOBS}})
    until(
        lambda: "hostPath" in str((installed.get("rlhf", "loose") or {}).get("status")),
        seconds=60,
        what=lambda: f"a refusal: {installed.get('rlhf', 'loose')}",
    )
    assert installed.pods("loose") == []
    installed.kubectl("delete", "rlhf", "loose", "-n", JOBS)


def test_the_restricted_standard_is_enforced_where_jobs_and_control_plane_run(
    installed: Cluster,
) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}}
    spec = {"hostNetwork": True, "containers": [{"name": "a", "image": "localhost/a:1"}]}
    for namespace in (SYSTEM, JOBS):
        body = {**pod, "metadata": {"name": "loose", "namespace": namespace}, "spec": spec}
        with pytest.raises(AssertionError, match="violates PodSecurity"):
            installed.apply(body)


@pytest.fixture(scope="module")
def actor(installed: Cluster, client: Client) -> str:
    """A pod of a running job."""
    decode = {"engine": "torch", "device": "cpu", "replicas": 1, "maxReplicas": 1}
    submit(client, "watched", tiny(decode=decode, planner={"scaling": "static"}))
    pods = lambda: [pod for pod in installed.pods("watched", "decode") if ready(pod)]  # noqa: E731
    found = until(pods, seconds=300, what="an actor")
    return str(found[0]["metadata"]["name"])


def test_an_actor_has_no_token_no_root_and_no_word_at_the_api_server(
    installed: Cluster, actor: str
) -> None:
    said = installed.kubectl("exec", "-n", JOBS, actor, "--", "python", "-c", PROBE)
    assert '"token": false' in said
    assert '"uid": 10001' in said
    assert "Read-only file system" in said
    assert '"api": 401' in said


def test_a_person_without_rights_is_not_served(installed: Cluster, client: Client) -> None:
    token = installed.kubectl("create", "token", "default", "-n", SYSTEM).strip()
    with Client(url=client.url, token=token) as stranger, pytest.raises(ApiError) as refused:
        stranger.page()
    assert refused.value.status == 403
    with Client(url=client.url, token="not a token") as nobody, pytest.raises(ApiError) as unknown:
        nobody.page()
    assert unknown.value.status == 401


def test_secrets_are_in_no_log_no_event_and_no_status(installed: Cluster, actor: str) -> None:
    secret = installed.get("secret", "ebbtide-credentials") or {}
    words = [base64.b64decode(value).decode() for value in secret["data"].values()]
    assert len(words) == 6
    said = [installed.kubectl("get", "rlhf,dpool,events,pods", "-n", JOBS, "-o", "yaml")]
    for namespace in (SYSTEM, JOBS):
        for pod in installed.objects("pods", namespace):
            name = pod["metadata"]["name"]
            said.append(installed.kubectl("logs", "-n", namespace, name, check=False))
    text = "\n".join(said)
    assert len(text) > 10_000
    assert [i for i, word in enumerate(words) if word in text] == []
    assert PERSON not in words
