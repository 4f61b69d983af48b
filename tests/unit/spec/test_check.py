from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.estimate import members
from ebbtide.spec import RLHFJob
from ebbtide.spec.base import PATTERN_WORDS
from ebbtide.spec.check import Fault, Invalid, check, dump
from tests.worlds.gateway import a_job


def faults_of(document: Any) -> list[Fault]:
    with pytest.raises(Invalid) as caught:
        check(document)
    return list(caught.value.faults)


def pointers_of(document: Any) -> list[str]:
    return [fault.pointer for fault in faults_of(document)]


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a document with its pointer, but for free maps."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from objects(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from objects(inner, f"{path}/{number}")


def test_a_valid_document_becomes_a_job() -> None:
    assert check(a_job()).spec.training.total_steps == 3


@given(st.integers(0, 100), st.sampled_from(["x", "groupsize", "a/b", "t~e", "grpo"]))
def test_an_unknown_field_anywhere_is_named_by_its_pointer(choice: int, name: str) -> None:
    document = copy.deepcopy(a_job())
    places = list(objects(document))
    path, holder = places[choice % len(places)]
    holder[name] = 1
    escaped = name.replace("~", "~0").replace("/", "~1")
    found = {fault.pointer: fault.detail for fault in faults_of(document)}
    assert found[f"{path}/{escaped}"].startswith("is not a known field")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("total_steps", "totalSteps"), ("learningrate", "learningRate"), ("zzz", "")],
)
def test_an_unknown_field_comes_with_the_one_that_was_meant(wrong: str, meant: str) -> None:
    """Names are the document's own: those of our code are no second spelling."""
    words = "is not a known field" + (f"; did you mean {meant}?" if meant else "")
    assert faults_of(a_job(training={"totalSteps": 3, wrong: 3})) == [
        Fault(f"/spec/training/{wrong}", words)
    ]


def test_many_unknown_fields_cost_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever checks (the gateway, for all its callers) would stand still for seconds."""
    made: list[object] = []
    schema = RLHFJob.model_json_schema

    def counted(**how: Any) -> dict[str, Any]:
        made.append(how)
        return schema(**how)

    monkeypatch.setattr(RLHFJob, "model_json_schema", counted)
    assert len(faults_of(a_job() | {f"unknown{n}": 1 for n in range(50)})) == 50
    assert len(made) <= 1


def test_half_of_a_surrogate_pair_is_named_as_such() -> None:
    assert "half of a surrogate pair" in faults_of(a_job(model={"uri": "/models/\ud800"}))[0].detail


@pytest.mark.parametrize(
    ("part", "pointer", "words"),
    [
        ({"metadata": {"name": "My_Job"}}, "/metadata/name", "lower-case letters, digits and -"),
        ({"model": {"uri": "/my models/a"}}, "/spec/model/uri", "must have no spaces"),
        ({"algorithm": {"type": "grop"}}, "/spec/algorithm", "type must be one of 'grpo', 'dapo'"),
        ({"algorithm": {"type": "grop"}}, "/spec/algorithm", "'reward-model'; did you mean grpo?"),
    ],
)
def test_what_a_text_must_be_is_said_in_words(
    part: dict[str, Any], pointer: str, words: str
) -> None:
    job = a_job(**part) if "metadata" not in part else a_job() | part
    (fault,) = faults_of(job)
    assert fault.pointer == pointer
    assert words in fault.detail


def test_a_supervised_job_with_held_out_rows_is_refused() -> None:
    source = {"type": "jsonl", "uri": "/d/rows.jsonl"}
    job = a_job(algorithm={"type": "sft"}, dataset={"train": source, "eval": source})
    (fault,) = faults_of(job)
    assert "dataset.eval is not for algorithm.type sft" in fault.detail


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ({"type": "sft"}, "not for algorithm.type sft: remove it"),
        ({"type": "grpo", "groupSize": 2}, "(5) is more than a step has answers (4)"),
    ],
)
def test_more_mini_batches_than_a_step_can_fill_are_refused(
    algorithm: dict[str, Any], words: str
) -> None:
    sizes = {"totalSteps": 3, "promptsPerStep": 2, "miniBatches": 5}
    (fault,) = faults_of(a_job(algorithm=algorithm, training=sizes))
    assert words in fault.detail


def test_recorded_batches_need_no_reward_and_are_not_for_given_rows() -> None:
    document = a_job(recorded={"uid": "0b1c-22"})
    del document["spec"]["reward"]
    assert not check(document).spec.samples
    document["spec"]["algorithm"] = {"type": "sft"}
    (fault,) = faults_of(document)
    assert fault.detail == "recorded is not for algorithm.type sft: remove it"


def test_a_job_that_only_samples_has_no_learner() -> None:
    spec = check(a_job(mode="rollout-only")).spec
    assert not spec.learns
    assert "learner" not in members(spec)
    assert check(a_job()).spec.learns


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"algorithm": {"type": "sft"}}, "is not for algorithm.type sft, which samples nothing"),
        ({"recorded": {"uid": "a"}}, "is not for a job with recorded, which samples nothing"),
        ({"training": {"totalSteps": 1, "lora": {}}}, "training.lora is not for mode rollout-only"),
    ],
)
def test_a_job_that_only_samples_must_sample_and_adapt_nothing(
    part: dict[str, Any], words: str
) -> None:
    (fault,) = faults_of(a_job(mode="rollout-only", **part))
    assert words in fault.detail


def test_recorded_answers_have_no_age_to_estimate_a_proximal_policy_by() -> None:
    algorithm = {"type": "grpo", "groupSize": 4, "decoupled": {"proximal": "interpolated"}}
    sizes = {"totalSteps": 3, "promptsPerStep": 2, "updatesPerBatch": 2}
    job = a_job(recorded={"uid": "a"}, algorithm=algorithm, training=sizes)
    (fault,) = faults_of(job)
    assert "set it to recomputed" in fault.detail
    job["spec"]["training"]["updatesPerBatch"] = 1
    assert check(job).spec.recorded is not None


@pytest.mark.parametrize("uid", ["../other", "", "a/b", "-x"])
def test_a_recorded_job_is_named_by_its_uid_alone(uid: str) -> None:
    assert pointers_of(a_job(recorded={"uid": uid})) == ["/spec/recorded/uid"]


def test_all_faults_come_at_once() -> None:
    document = a_job(training={"totalSteps": 0, "temperature": "hot"}, bogus=1)
    found = pointers_of(document)
    assert found == ["/spec/training/totalSteps", "/spec/training/temperature", "/spec/bogus"]


def test_the_branch_of_a_union_is_not_part_of_the_pointer() -> None:
    assert pointers_of(a_job(algorithm={"type": "grpo", "groupSize": 1})) == [
        "/spec/algorithm/groupSize"
    ]


def test_a_missing_field_inside_a_union_is_named() -> None:
    document = a_job(reward={"components": [{"type": "function", "name": "f"}]})
    assert faults_of(document) == [Fault("/spec/reward/components/0/entryPoint", "is required")]


def test_an_unknown_branch_names_the_union() -> None:
    assert pointers_of(a_job(algorithm={"type": "no-such"})) == ["/spec/algorithm"]


def test_a_rule_across_fields_says_the_fix() -> None:
    document = a_job()
    del document["spec"]["reward"]
    (fault,) = faults_of(document)
    assert fault.pointer == "/spec"
    assert fault.detail.startswith("reward is required for algorithm.type grpo: add")


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ({"type": "grpo", "kl": {"target": 0.1}}, "kl.target adapts klCoefficient"),
        (
            {"type": "dapo", "klCoefficient": 0.1, "kl": {"place": "reward"}},
            "kl.place reward needs advantageScale none",
        ),
        (
            {"type": "reinforce-plus-plus", "baseline": "group", "groupSize": 1},
            "baseline group needs groupSize 2",
        ),
        ({"type": "reinforce-plus-plus", "zeroVariance": "drop"}, "needs baseline group"),
        (
            {"type": "gspo", "decoupled": {}, "mismatch": {"weight": "token"}},
            "set mismatch.weight to none",
        ),
    ],
)
def test_options_of_an_algorithm_that_contradict_each_other_are_refused(
    algorithm: dict[str, Any], words: str
) -> None:
    (fault,) = faults_of(a_job(algorithm=algorithm))
    assert fault.pointer == "/spec/algorithm"
    assert words in fault.detail


def test_there_is_nothing_to_offload_from_on_a_cpu() -> None:
    (fault,) = faults_of(a_job(learner={"device": "cpu", "cpuOffload": True}))
    assert fault.pointer == "/spec/learner"
    assert "cpuOffload needs a GPU" in fault.detail


def test_packed_rows_are_not_for_a_critic_of_another_kind() -> None:
    algorithm = {"type": "ppo", "critic": {"uri": "/models/other"}}
    (fault,) = faults_of(a_job(algorithm=algorithm, learner={"packing": True}))
    assert fault.detail.startswith("learner.packing is for a critic")


@pytest.mark.parametrize(
    "kind", ["grpo", "dapo", "gspo", "cispo", "rloo", "reinforce-plus-plus", "ppo"]
)
def test_every_algorithm_works_by_its_name_alone_and_needs_a_reward(kind: str) -> None:
    document = a_job(algorithm={"type": kind})
    assert check(dump(check(document))) == check(document)
    del document["spec"]["reward"]
    (fault,) = faults_of(document)
    assert fault.detail.startswith(f"reward is required for algorithm.type {kind}")


@pytest.mark.parametrize("document", [None, [], "job", 3])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    assert pointers_of(document) == [""]


def test_no_value_of_the_document_is_repeated_in_a_fault() -> None:
    found = faults_of(a_job(seed="a-secret-that-slipped-in"))
    assert "a-secret-that-slipped-in" not in json.dumps([f.detail for f in found])


def test_a_dump_is_read_back_as_the_same_job() -> None:
    document = a_job(deadlines={"preRunningSeconds": None})
    job = check(document)
    dumped = dump(job)
    assert RLHFJob.model_validate_json(json.dumps(dumped)) == job
    assert dumped["spec"]["deadlines"]["preRunningSeconds"] is None
    assert dumped["spec"]["decode"]["replicas"] == 2


def test_the_number_of_faults_is_bounded() -> None:
    document = a_job()
    document["spec"].update({f"x{number}": 1 for number in range(500)})
    assert len(faults_of(document)) == 100


def test_actors_sleep_only_in_a_pool_that_the_planner_scales() -> None:
    document = a_job()
    document["spec"]["planner"] = {"parked": 1}
    [fault] = faults_of(document)
    assert fault.pointer == "/spec/planner"
    assert "parked needs scaling elastic" in fault.detail
    document["spec"]["planner"]["scaling"] = "elastic"
    assert check(document).spec.planner.parked == 1


@pytest.mark.parametrize("mode", ["service", "auto"])
def test_whoever_may_compute_prompts_must_compute_the_same_bits(mode: str) -> None:
    document = a_job()
    document["spec"]["decode"] = {"engine": "torch", "referenceMode": True, "threads": 2}
    document["spec"]["prefill"] = {"mode": mode}
    assert "promises equal bits" in faults_of(document)[0].detail
    document["spec"]["prefill"]["threads"] = 2
    assert check(document).spec.prefill.mode == mode


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        ({"referenceMode": True}, "referenceMode needs engine torch"),
        ({"device": "cpu", "vllm": {"kvDtype": "fp8"}}, "needs a GPU"),
        ({"vllm": {"chunkedPrefill": False, "maxBatchedTokens": 64}}, "raise it, or set chunked"),
        ({"device": "cpu", "vllm": {"maxBatchedTokens": 64}}, "raise it, or set chunked"),
        ({"device": "cpu", "vllm": {"chunkedPrefill": True}}, "chunkedPrefill needs a GPU"),
        ({"vllm": {"maxBatchedTokens": 8}}, "take fewer slots"),
    ],
    ids=str,
)
def test_what_vllm_cannot_do_is_said_before_anything_starts(
    decode: dict[str, Any], words: str
) -> None:
    assert any(words in f.detail for f in faults_of(a_job(decode={"engine": "vllm", **decode})))
    harmless = a_job(decode={"engine": "torch", **decode, "referenceMode": False})
    assert check(harmless).spec.decode.engine == "torch"


@pytest.mark.parametrize(
    ("algorithm", "fix"), [("grpo", "add dataset.eval, or remove it"), ("sft", ": remove it")]
)
def test_an_interval_of_evaluations_needs_rows_to_evaluate_on(algorithm: str, fix: str) -> None:
    document = a_job(algorithm={"type": algorithm}, evaluation={"everySteps": 2})
    (fault,) = faults_of(document)
    assert "evaluation.everySteps evaluates nothing without dataset.eval" in fault.detail
    assert fault.detail.endswith(fix)


def test_a_stored_job_without_evaluation_is_still_a_job() -> None:
    assert check(dump(check(a_job()))).spec.evaluation.every_steps == 10


def scored_by(**component: str) -> str:
    document = a_job(reward={"components": [{"name": "r", **component}]})
    (fault,) = faults_of(document)
    return fault.detail


def test_the_type_of_a_component_that_was_meant_is_named() -> None:
    found = scored_by(type="funktion", entryPoint="grade:right")
    assert found.startswith("type must be one of 'exact', 'numeric'")
    assert found.endswith("; did you mean function?")
    assert "did you mean" not in scored_by(type="zzz")


def test_what_an_entry_point_must_be_is_said_without_its_pattern() -> None:
    words = "must be module:function, such as grade:short_and_right"
    assert scored_by(type="function", entryPoint="grade.py") == words


@pytest.mark.parametrize(("document", "words"), [(None, "the document is empty: a"), ([], "a")])
def test_what_is_no_object_is_said_in_whole_words(document: Any, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        check(document)
    said = f"{words} job is an object with apiVersion, kind, metadata and spec"
    assert str(caught.value) == said


def test_every_pattern_of_a_job_has_words() -> None:
    schema = json.dumps(RLHFJob.model_json_schema())
    found = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', schema)
    assert {json.loads(one) for one in found} == set(PATTERN_WORDS)


@pytest.mark.parametrize(
    ("environment", "pointer", "words"),
    [
        ({}, "/spec/environment", "give name or entryPoint"),
        ({"name": "calculator", "entryPoint": "a:b"}, "/spec/environment", "give name or entry"),
        ({"name": "abacus"}, "/spec/environment/name", "calculator"),
        ({"entryPoint": "a.py"}, "/spec/environment/entryPoint", "must be module:function"),
        ({"name": "calculator", "maxTurns": 1}, "/spec/environment/maxTurns", "2"),
    ],
)
def test_an_environment_that_cannot_be_is_told_why(
    environment: dict[str, Any], pointer: str, words: str
) -> None:
    (fault,) = faults_of(a_job(environment=environment))
    assert fault.pointer == pointer
    assert words in fault.detail


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "reward-model"])
def test_a_supervised_job_has_no_environment(algorithm: str) -> None:
    document = a_job(algorithm={"type": algorithm}, environment={"name": "calculator"})
    assert "environment is not for algorithm.type" in " ".join(
        fault.detail for fault in faults_of(document)
    )
