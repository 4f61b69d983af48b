"""Pods as Kubernetes gets them, and what they need beside themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pydantic.alias_generators import to_camel

from ebbtide.ports import Resource
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.observed import DecodePoolStatus, JobStatus
from ebbtide.spec.runtime import ClusterRLHFRuntimeSpec, NodePoolSpec
from ebbtide.testing.jobs import a_job, a_spec
from ebbtide_operator.core import pods, queueing
from ebbtide_operator.core.companions import access, meeting
from ebbtide_operator.core.nearness import PREFERRED
from ebbtide_operator.core.pods import Cast
from ebbtide_operator.core.render import Renderer
from ebbtide_operator.core.site import TOPOLOGY, KubeSite, Mount, NodePool, Sandbox, Site
from ebbtide_operator.core.status import FIELDS, Own, PoolStatus

GPU = NodePool(
    node_selector={"pool": "gpu"},
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
    resources={"nvidia.com/gpu": "1"},
    runtime_class="nvidia",
)
KUBE = KubeSite(
    image="ebbtide:1",
    image_pull_secrets=("registry",),
    pools={"gpu": GPU},
    resources={"learner": {"cpu": "2"}},
    priority_classes={"learner": "high"},
)


def cast(kube: KubeSite | None = KUBE, **changes: Any) -> Cast:
    job = a_job(spec=a_spec(**changes))
    meta = msgspec.structs.replace(job.metadata, uid="0123456789abcdef", namespace="team")
    site = Site(kubernetes=kube, secret_env={"decode": {"EBBTIDE_NATS_PASSWORD": "nats/decode"}})
    spec = RLHFJobSpec.model_validate_json(msgspec.json.encode(job.spec))
    return Cast(msgspec.structs.replace(job, metadata=meta), spec, site)


def rendered(pod: Resource) -> dict[str, Any]:
    return dict(Renderer(KUBE)(pod))


def decode(**changes: Any) -> dict[str, Any]:
    job = cast(**changes)
    return rendered(pods.decode_pod(job, pods.pool_object(job), 1, 0))


def env(spec: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in spec["containers"][0]["env"]}


def test_a_pool_is_what_the_scheduler_gets() -> None:
    spec = decode(decode={"pool": "gpu"})
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_a_job_adds_to_its_pods_and_replaces_nothing() -> None:
    main = {
        "name": "main",
        "env": [{"name": "X", "value": "1"}],
        "resources": {"limits": {"a": "2"}},
    }
    added = {
        "nodeSelector": {"pool": "mine", "zone": "b"},
        "tolerations": [{"key": "mine"}],
        "runtimeClassName": "mine",
        "containers": [main],
    }
    spec = decode(decode={"pool": "gpu", "podTemplate": {"spec": added}})
    assert spec["nodeSelector"] == {"pool": "gpu", "zone": "b"}
    assert [one["key"] for one in spec["tolerations"]] == ["nvidia.com/gpu", "mine"]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1", "a": "2"}
    assert env(spec)["X"]["value"] == "1"


PROGRAM = {"components": [{"type": "code", "name": "program"}]}
CELLS = Sandbox(seccomp_profile="ebbtide/cells.json", app_armor_profile="cells")


def scorer(sandbox: Sandbox, **changes: Any) -> dict[str, Any]:
    kube = msgspec.structs.replace(KUBE, sandbox=sandbox)
    return dict(Renderer(kube)(pods.reward_pod(cast(kube, **changes), 1, 0)))


def test_a_scorer_of_programs_may_make_cells_and_keeps_all_other_bounds() -> None:
    spec = scorer(CELLS, reward=PROGRAM)
    mine = spec["containers"][0]["securityContext"]
    profile = {"type": "Localhost", "localhostProfile": "ebbtide/cells.json"}
    assert mine["seccompProfile"] == profile
    assert mine["appArmorProfile"] == {"type": "Localhost", "localhostProfile": "cells"}
    assert mine["capabilities"] == {"drop": ["ALL"]}
    assert mine["allowPrivilegeEscalation"] is False
    assert spec["automountServiceAccountToken"] is False


def test_no_other_pod_may_make_cells() -> None:
    kube = msgspec.structs.replace(KUBE, sandbox=CELLS)
    job = cast(kube, reward=PROGRAM)
    others = (pods.planner_pod(job, 1, 0), pods.decode_pod(job, pods.pool_object(job), 1, 0))
    made = [Renderer(kube)(pod) for pod in others] + [scorer(CELLS)]
    assert all("seccompProfile" not in one["containers"][0]["securityContext"] for one in made)


def test_the_sandboxs_runtime_class_goes_before_the_pools() -> None:
    own = Sandbox(runtime_class="gvisor")
    reward = {**PROGRAM, "pool": "gpu"}
    assert scorer(own, reward=reward)["runtimeClassName"] == "gvisor"
    assert scorer(CELLS, reward=reward)["runtimeClassName"] == "nvidia"


def test_programs_run_without_a_cell_only_if_the_administrator_says_so() -> None:
    loose = env(scorer(Sandbox(unisolated=True), reward=PROGRAM))
    assert loose["EBBTIDE_SANDBOX"]["value"] == "if-possible"
    assert "EBBTIDE_SANDBOX" not in env(scorer(CELLS, reward=PROGRAM))


def _wishes(spec: Mapping[str, Any]) -> dict[str, int]:
    terms = spec["affinity"]["podAffinity"][PREFERRED]
    return {one["podAffinityTerm"]["topologyKey"]: one["weight"] for one in terms}


def test_an_actor_prefers_to_be_near_its_own_learner() -> None:
    spec = decode()
    assert list(_wishes(spec)) == list(TOPOLOGY)
    assert sorted(_wishes(spec).values(), reverse=True) == list(_wishes(spec).values())
    term = spec["affinity"]["podAffinity"][PREFERRED][0]["podAffinityTerm"]
    assert term["labelSelector"]["matchLabels"]["rlhf.ebbtide.dev/role"] == "learner"


def test_who_does_not_compute_stands_anywhere() -> None:
    assert "affinity" not in rendered(pods.planner_pod(cast(), 1, 0))


def test_a_site_without_topology_wishes_for_nothing() -> None:
    flat = Renderer(msgspec.structs.replace(KUBE, topology=()))
    job = cast()
    assert "affinity" not in flat(pods.decode_pod(job, pods.pool_object(job), 1, 0))


def test_the_affinity_of_a_template_is_joined_to_ours() -> None:
    term = {"weight": 7, "podAffinityTerm": {"topologyKey": "rack", "labelSelector": {}}}
    hard: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": hard}
    added = {"podAffinity": {PREFERRED: [term]}, "nodeAffinity": node}
    spec = decode(decode={"podTemplate": {"spec": {"affinity": added}}})
    assert list(_wishes(spec)) == [*TOPOLOGY, "rack"]
    assert spec["affinity"]["nodeAffinity"] == node


def test_a_label_of_ours_is_not_the_templates_to_set() -> None:
    job = cast(decode={"podTemplate": {"metadata": {"labels": {"team": "a"}}}})
    labelled = pods.decode_pod(job, pods.pool_object(job), 1, 0).metadata.labels
    assert (labelled["team"], labelled["rlhf.ebbtide.dev/role"]) == ("a", "decode")


def test_a_runtime_overrides_the_site_by_name() -> None:
    job = cast(decode={"pool": "gpu"})
    theirs = {"image": "theirs", "pools": {"other": {}}, "priorityClasses": {"decode": "low"}}
    runtime = msgspec.structs.replace(job, runtime=theirs)
    spec = rendered(pods.decode_pod(runtime, pods.pool_object(job), 1, 0))
    assert (spec["containers"][0]["image"], spec["priorityClassName"]) == ("theirs", "low")
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_every_field_of_a_runtime_is_one_of_the_site() -> None:
    site = {field.encode_name for field in msgspec.structs.fields(KubeSite)}
    pool = {field.encode_name for field in msgspec.structs.fields(NodePool)}
    assert {to_camel(name) for name in ClusterRLHFRuntimeSpec.model_fields} <= site
    assert {to_camel(name) for name in NodePoolSpec.model_fields} == pool


def test_on_one_machine_a_template_adds_nothing() -> None:
    job = cast(None, decode={"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}})
    assert "template" not in pods.decode_pod(job, pods.pool_object(job), 1, 0).spec


def test_an_unlisted_pool_asks_for_nothing() -> None:
    spec = decode()
    assert "nodeSelector" not in spec
    assert "resources" not in spec["containers"][0]


def test_a_role_has_its_resources_and_priority() -> None:
    spec = rendered(pods.learner_pod(cast(), 1, 0))
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert spec["priorityClassName"] == "high"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_a_secret_goes_by_reference_and_never_by_value() -> None:
    secret = env(decode())["EBBTIDE_NATS_PASSWORD"]
    reference = {"secretKeyRef": {"name": "nats", "key": "decode"}}
    assert secret == {"name": "EBBTIDE_NATS_PASSWORD", "valueFrom": reference}


def test_the_process_listens_where_the_probes_look() -> None:
    spec = decode()
    probe = spec["containers"][0]["readinessProbe"]["httpGet"]
    assert probe == {"path": "/readyz", "port": 8080}
    assert env(spec)["EBBTIDE_HEALTH_PORT"]["value"] == "8080"


def test_a_pod_has_the_grace_of_its_role() -> None:
    assert decode(decode={"drainSeconds": 45.0})["terminationGracePeriodSeconds"] == 45


def test_ranks_find_rank_0_by_a_service_that_shows_it_before_it_is_ready() -> None:
    job = cast()
    first, second = (pods.learner_pod(job, 3, rank) for rank in (0, 1))
    name, service = first.metadata.name, meeting(job)[0]
    place = f"tcp://{name}.{service.metadata.name}:29500"
    assert second.spec["env"]["EBBTIDE_RENDEZVOUS"] == place
    spec = rendered(first)
    assert (spec["hostname"], spec["subdomain"]) == (name, service.metadata.name)
    assert service.spec["publishNotReadyAddresses"] is True


def test_the_planner_alone_has_an_account() -> None:
    job = cast()
    planner = rendered(pods.planner_pod(job, 1, 0))
    names = {one.metadata.name for one in access(job)}
    assert env(planner)["EBBTIDE_CLUSTER"]["value"] == "kubernetes"
    assert names == {planner["serviceAccountName"]} == {"job-planner-01234567"}
    assert not rendered(pods.reward_pod(job, 1, 0))["automountServiceAccountToken"]


def test_every_right_but_looking_at_pods_is_by_name() -> None:
    role = next(one for one in access(cast()) if one.kind == "Role")
    open_rules = [r["resources"] for r in role.spec["rules"] if "resourceNames" not in r]
    assert open_rules == [["pods"]]


def queued(role_priorities: dict[str, str]) -> Cast:
    whole = cast(msgspec.structs.replace(KUBE, queue_priorities=role_priorities))
    own = {queueing.QUEUE: "team-a", queueing.PRIORITY: "normal"}
    meta = msgspec.structs.replace(whole.job.metadata, labels=own)
    job = msgspec.structs.replace(whole.job, metadata=meta)
    return msgspec.structs.replace(whole, job=job)


def test_the_ranks_of_an_attempt_are_admitted_together() -> None:
    for rank in (0, 1):
        meta = pods.learner_pod(queued({}), 3, rank).metadata
        assert meta.labels[queueing.GROUP] == "job-learner-3"
        assert meta.annotations[queueing.TOTAL] == "2"


def test_an_actor_is_admitted_by_itself_and_with_its_own_priority() -> None:
    job = queued({"decode": "spare"})
    meta = pods.decode_pod(job, pods.pool_object(job), 1, 0).metadata
    assert (meta.labels[queueing.QUEUE], meta.labels[queueing.PRIORITY]) == ("team-a", "spare")
    assert queueing.GROUP not in meta.labels
    assert queueing.TOTAL not in meta.annotations


def test_a_job_without_a_queue_is_not_queued() -> None:
    meta = pods.learner_pod(cast(), 1, 0).metadata
    assert [name for name in (*meta.labels, *meta.annotations) if "kueue" in name] == []


def test_no_job_needs_companions_on_one_machine() -> None:
    assert (access(cast(kube=None)), meeting(cast(kube=None))) == ((), ())


def test_the_policy_keeps_every_field_of_the_operator_from_the_planner() -> None:
    text = (Path(__file__).parents[3] / "deploy/kubernetes/policies.yaml").read_text()
    rules = next(yaml.safe_load_all(text))["spec"]["validations"]
    guarded = {rule["expression"].rpartition("?")[2] for rule in rules}
    assert guarded == set(Own.__struct_encode_fields__)


@pytest.mark.parametrize(("model", "own"), [(JobStatus, Own), (DecodePoolStatus, PoolStatus)])
def test_the_schema_of_the_status_has_every_field_that_is_written(model: Any, own: Any) -> None:
    properties = model.model_json_schema()["properties"]
    written = set(own.__struct_encode_fields__) | (FIELDS if own is Own else set())
    assert set(properties) == written


def test_the_sites_volumes_are_in_every_pod() -> None:
    store = Mount(claim="store", path="/data", read_only=True)
    job = cast(msgspec.structs.replace(KUBE, volumes={"store": store}))
    for pod in (pods.planner_pod(job, 1, 0), pods.reward_pod(job, 1, 0)):
        spec = Renderer(msgspec.structs.replace(KUBE, volumes={"store": store}))(pod)
        claim = {"claimName": "store", "readOnly": True}
        assert spec["volumes"][-1]["persistentVolumeClaim"] == claim
        mounted = spec["containers"][0]["volumeMounts"][-1]
        assert mounted == {"name": "store", "mountPath": "/data", "readOnly": True}
