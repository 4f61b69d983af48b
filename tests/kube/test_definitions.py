"""The definitions on a real API server: schema, defaults, rules, columns, scale."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ebbtide.generate.crds import JOB_RULES, NAME_RULE, POOL_RULES
from ebbtide.objects import merge
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.jobs import a_spec, an_sft_spec
from tests.worlds.kube import ROOT, Answer, ControlPlane

pytestmark = pytest.mark.kube
VERSION = "rlhf.ebbtide.dev/v1alpha1"
JOBS = f"/apis/{VERSION}/namespaces/{{}}/rlhfjobs"
POOLS = f"/apis/{VERSION}/namespaces/{{}}/decodepools"


@pytest.fixture(scope="module")
def place(kubernetes: ControlPlane) -> str:
    return kubernetes.namespace()


def job(name: str, spec: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "RLHFJob",
        "metadata": {"name": name},
        "spec": merge(spec or a_spec(), changes),
    }


def pool(name: str, **spec: Any) -> dict[str, Any]:
    whole = {"job": "job", "replicas": 2, **spec}
    return {"apiVersion": VERSION, "kind": "DecodePool", "metadata": {"name": name}, "spec": whole}


BUDGET: dict[str, Any] = {"budget": {"maxCost": 5.0}}
PRICED: dict[str, Any] = {"prices": [{"pool": "default", "perHour": 1.0}]}
SERVICE = {"prefill": {"mode": "service"}}
SFT = an_sft_spec()
RECORDED: dict[str, Any] = {"recorded": {"uid": "u-1"}}
ROLLOUTS: dict[str, Any] = {"mode": "rollout-only"}
EVAL = {"dataset": {"eval": {"type": "jsonl", "uri": "/data/eval.jsonl"}}}

# By message: a job that passes and one that does not.
CREATED = {
    "reward is required": (job("a"), job("b", reward=None)),
    "dataset.eval is not for algorithm.type": (job("a", SFT), job("b", SFT, **EVAL)),
    "recorded is not for": (job("a", reward=None, **RECORDED), job("b", SFT, **RECORDED)),
    "dataset.eval is not for a job with recorded": (
        job("a", reward=None, **RECORDED),
        job("b", **RECORDED, **EVAL),
    ),
    "mode rollout-only is for": (job("a", **ROLLOUTS), job("b", SFT, **ROLLOUTS)),
    "training.lora is not for": (
        job("a", **ROLLOUTS),
        job("b", **ROLLOUTS, training={"lora": {"rank": 2}}),
    ),
    "budget needs prices": (job("a", **BUDGET, **PRICED), job("b", **BUDGET)),
    "decode.replicas must lie": (
        job("a", decode={"minReplicas": 1, "replicas": 1}),
        job("b", decode={"minReplicas": 3, "replicas": 2}),
    ),
    "prefill.mode service needs": (
        job("a", **SERVICE),
        job("b", **SERVICE, decode={"engine": "emulated"}),
    ),
    "must hold no credentials": (
        job("a", model={"uri": "s3://bucket/model"}),
        job("b", model={"uri": "s3://key:secret@bucket/model"}),
    ),
    "at most 40 characters": (job("a" * 40), job("a" * 41)),
}
# By message: a patch of a job that runs and passes, and one that does not.
CHANGED = {
    "mode cannot be changed": ({"seed": 5}, ROLLOUTS),
    "model cannot be changed": ({"seed": 1}, {"model": {"uri": "/models/other"}}),
    "dataset cannot be changed": ({"seed": 2}, {"dataset": {"train": {"uri": "/data/x.jsonl"}}}),
    "algorithm.type cannot be": (
        {"algorithm": {"groupSize": 4}},
        {"algorithm": {"type": "sft", "groupSize": None}},
    ),
    "runtimeRef cannot be changed": ({"seed": 3}, {"runtimeRef": {"name": "other"}}),
    "recorded cannot be changed": ({"seed": 4}, RECORDED),
    "learner.ranks can be": ({"learner": {"threads": 2}}, {"learner": {"ranks": 3}}),
}


def test_every_rule_has_a_job_that_breaks_it() -> None:
    messages = [rule.message for rule in (*JOB_RULES, NAME_RULE)]
    shown = [*CREATED, *CHANGED]
    assert [m for m in messages if not any(part in m for part in shown)] == []
    assert len(POOL_RULES) == 1


@pytest.mark.parametrize("rule", CREATED)
def test_a_job_that_breaks_a_rule_is_refused(
    kubernetes: ControlPlane, place: str, rule: str
) -> None:
    good, bad = CREATED[rule]
    kubernetes.call("POST", f"{JOBS.format(place)}?dryRun=All", good)
    with pytest.raises(Answer, match=rule) as caught:
        kubernetes.call("POST", f"{JOBS.format(place)}?dryRun=All", bad)
    assert caught.value.code == 422


@pytest.mark.parametrize("rule", CHANGED)
def test_a_change_that_breaks_a_rule_is_refused(
    kubernetes: ControlPlane, place: str, rule: str
) -> None:
    name = "change-" + rule.partition(".")[0].partition(" ")[0].lower()
    kubernetes.call("POST", JOBS.format(place), job(name))
    good, bad = CHANGED[rule]
    kubernetes.merge(f"{JOBS.format(place)}/{name}", {"spec": good})
    with pytest.raises(Answer, match=rule):
        kubernetes.merge(f"{JOBS.format(place)}/{name}", {"spec": bad})


def test_ranks_are_changed_while_the_job_is_suspended(kubernetes: ControlPlane, place: str) -> None:
    kubernetes.call("POST", JOBS.format(place), job("ranks", suspend=True))
    path = f"{JOBS.format(place)}/ranks"
    changed = kubernetes.merge(path, {"spec": {"learner": {"ranks": 3}, "suspend": False}})
    assert changed["spec"]["learner"]["ranks"] == 3


def test_a_pool_is_named_once_in_the_prices(kubernetes: ControlPlane, place: str) -> None:
    twice = [{"pool": "a", "perHour": 1.0}, {"pool": "a", "perHour": 2.0}]
    with pytest.raises(Answer, match="Duplicate"):
        kubernetes.call("POST", f"{JOBS.format(place)}?dryRun=All", job("a", prices=twice))


def test_a_pool_keeps_its_job_and_names_no_actor_twice(
    kubernetes: ControlPlane, place: str
) -> None:
    kubernetes.call("POST", POOLS.format(place), pool("kept"))
    with pytest.raises(Answer, match="job cannot be changed"):
        kubernetes.merge(f"{POOLS.format(place)}/kept", {"spec": {"job": "other"}})
    with pytest.raises(Answer, match="Duplicate"):
        kubernetes.merge(f"{POOLS.format(place)}/kept", {"spec": {"release": ["a", "a"]}})


def test_defaults_are_those_of_the_specification(kubernetes: ControlPlane, place: str) -> None:
    made = kubernetes.call("POST", f"{JOBS.format(place)}?dryRun=All", job("defaults"))
    filled = RLHFJobSpec.model_validate_json(json.dumps(made["spec"]))
    assert filled == RLHFJobSpec.model_validate_json(json.dumps(a_spec()))
    assert made["spec"]["decode"]["slots"] == filled.decode.slots


@pytest.mark.parametrize("example", sorted((ROOT / "deploy/examples").glob("*.yaml")), ids=str)
def test_every_example_is_accepted_word_for_word(
    kubernetes: ControlPlane, place: str, example: Any
) -> None:
    document = yaml.safe_load(example.read_text())
    document["metadata"].pop("namespace", None)
    path = f"{JOBS.format(place)}?dryRun=All&fieldValidation=Strict"
    kubernetes.call("POST", path, document)


def test_an_unknown_field_is_pruned_and_named_by_strict_validation(
    kubernetes: ControlPlane, place: str
) -> None:
    path, odd = f"{JOBS.format(place)}?dryRun=All", job("odd", bogus=1)
    assert "bogus" not in kubernetes.call("POST", path, odd)["spec"]
    with pytest.raises(Answer, match=r'unknown field "spec\.bogus"'):
        kubernetes.call("POST", f"{path}&fieldValidation=Strict", odd)


def test_a_condition_is_told_apart_by_its_type(kubernetes: ControlPlane, place: str) -> None:
    kubernetes.call("POST", JOBS.format(place), job("conditions"))
    one = {"type": "Running", "status": "True", "reason": "RolesReady"}
    status = {"status": {"conditions": [one, one]}}
    with pytest.raises(Answer, match="Duplicate"):
        kubernetes.merge(f"{JOBS.format(place)}/conditions/status", status)


def test_kubectl_shows_state_why_step_decode_cost_and_age(
    kubernetes: ControlPlane, place: str
) -> None:
    kubernetes.call("POST", JOBS.format(place), job("shown"))
    status = {
        "phase": "Running",
        "reason": "RolesReady",
        "progress": {"step": 7},
        "cost": {"accrued": 1.25},
        "roles": [{"name": "learner", "ready": 2}, {"name": "decode", "ready": 3, "desired": 4}],
    }
    kubernetes.merge(f"{JOBS.format(place)}/shown/status", {"status": status})
    printed = kubernetes.kubectl("get", "rlhf", "shown", "-n", place).splitlines()
    assert printed[0].split() == ["NAME", "STATE", "WHY", "STEP", "READY", "DECODE", "COST", "AGE"]
    assert printed[1].split()[:7] == ["shown", "Running", "RolesReady", "7", "3", "4", "1.25"]


def test_kubectl_shows_a_pool(kubernetes: ControlPlane, place: str) -> None:
    kubernetes.call("POST", POOLS.format(place), pool("shown", replicas=4))
    counts = {"readyReplicas": 3, "pendingReplicas": 1, "drainingReplicas": 2}
    kubernetes.merge(f"{POOLS.format(place)}/shown/status", {"status": counts})
    printed = kubernetes.kubectl("get", "dpool", "shown", "-n", place).splitlines()
    names = ["NAME", "JOB", "WANTED", "READY", "PENDING", "DRAINING", "AGE"]
    assert printed[0].split() == names
    assert printed[1].split()[:6] == ["shown", "job", "4", "3", "1", "2"]


def test_kubectl_explains_every_field(kubernetes: ControlPlane) -> None:
    parts = ("rlhfjobs.spec", "rlhfjobs.status", "decodepools.spec", "decodepools.status")
    for part in (*parts, "clusterrlhfruntimes.spec"):
        printed = kubernetes.kubectl("explain", part)
        assert "<no description>" not in printed, printed
    said = kubernetes.kubectl("explain", "rlhf.spec.decode.minReplicas")
    assert "Never fewer than this." in said


def test_the_category_lists_both_kinds(kubernetes: ControlPlane, place: str) -> None:
    kubernetes.call("POST", JOBS.format(place), job("listed"))
    kubernetes.call("POST", POOLS.format(place), pool("listed"))
    printed = kubernetes.kubectl("get", "ebbtide", "-n", place, "-o", "name").split()
    assert "rlhfjob.rlhf.ebbtide.dev/listed" in printed
    assert "decodepool.rlhf.ebbtide.dev/listed" in printed


def test_a_pool_is_scaled_as_every_other_workload(kubernetes: ControlPlane, place: str) -> None:
    kubernetes.call("POST", POOLS.format(place), pool("scaled"))
    path = f"{POOLS.format(place)}/scaled"
    status = {"replicas": 2, "selector": "a=b"}
    kubernetes.merge(f"{path}/status", {"status": status})
    kubernetes.kubectl("scale", "dpool", "scaled", "--replicas=5", "-n", place)
    scale = kubernetes.call("GET", f"{path}/scale")
    assert (scale["spec"]["replicas"], scale["status"]) == (5, status)
    assert kubernetes.call("GET", path)["spec"]["replicas"] == 5
