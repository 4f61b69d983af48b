"""One sample whole, and what a job would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.estimate import Alike, estimate, shape_of
from ebbtide.shapes import read_shape
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import (
    Accepted,
    Adopted,
    Continued,
    Dispatch,
    Dispatched,
    Part,
    Ref,
    SampleKey,
    Value,
)
from services.gateway.core.history import StepView
from tests.e2e.tiny import write_model
from tests.unit.gateway.test_artifacts_api import HAND, POLICY, UID, accepted, plan, scored
from tests.unit.gateway.test_figures import a_report, put
from tests.worlds.gateway import World, a_job

CONFIG = {
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "num_hidden_layers": 10,
    "vocab_size": 1000,
}


async def test_a_sample_is_shown_with_every_actor_that_it_ran_on() -> None:
    world = World()
    await world.put_job()
    one = await accepted(world, 1, 0)
    first = Dispatch(attempt=1, planner_epoch=1, seq=9)
    value = Value(0.5, (Part("task", 1.0, 0.5),))
    hands = [
        Dispatched(one.key, hand, actor, POLICY) for hand, actor in ((first, "d-0"), (HAND, "d-1"))
    ]
    await world.put_ledger(UID, [plan(0, "train", "train"), *hands, one, scored(one, value)])
    async with world.client() as api:
        found = (await api.get("/v1/jobs/demo/samples/0/1/0")).json()
        missing = await api.get("/v1/jobs/demo/samples/0/1/7")
    assert [(hand["actor"], hand["counts"]) for hand in found["handOuts"]] == [
        ("d-0", False),
        ("d-1", True),
    ]
    assert (found["tokens"], found["logprobs"]) == ([2, 3], [0.0, 0.0])
    assert found["score"]["parts"][0]["weighted"] == 0.5
    assert missing.status_code == 404


def test_an_episode_is_shown_by_its_last_turn_alone() -> None:
    turns = [SampleKey(UID, 0, 1, 0, turn) for turn in range(2)]
    first, last = (Accepted(key, HAND, Ref("r", "d", 1), POLICY, 2, "stop") for key in turns)
    reply = Continued(turns[0], Ref("g", "d", 1), 3, "rules")
    view = StepView(0, [plan(0, "train", "train"), first, reply])
    assert view.keys(None) == []
    view = StepView(0, [plan(0, "train", "train"), first, reply, last])
    assert view.keys(None) == [turns[1]]
    assert view.present(turns[0]) == turns[1]


def test_an_episode_that_a_new_attempt_adopts_is_shown_though_its_turn_had_been_replied_to() -> (
    None
):
    key = SampleKey(UID, 0, 1, 0, 0)
    first = Accepted(key, HAND, Ref("r", "d", 1), POLICY, 2, "stop")
    reply = Continued(key, Ref("g", "d", 1), 3, "rules")
    opened = plan(0, "train", "train")
    view = StepView(0, [opened, first, reply, opened, Adopted(key, 1, first.ref)])
    assert view.keys(None) == [view.present(key)] == [key]
    assert view.ref(key) == first.ref


def a_spec(**parts: Any) -> RLHFJobSpec:
    return RLHFJobSpec.model_validate_json(json.dumps(a_job(**parts)["spec"]))


def test_the_account_of_a_learner_rank_is_its_share_of_four_copies() -> None:
    shape = shape_of(CONFIG, 1_000_000)
    assert shape is not None
    (learner, decode) = estimate(a_spec(learner={"ranks": 4}), shape)["memory"]
    assert learner["parts"]["parameters"] == learner["parts"]["gradients"] == 1_000_000
    assert learner["parts"]["optimiser"] == 2_000_000
    assert "reference" not in learner["parts"]
    assert decode["total"] == sum(decode["parts"].values())


def test_kv_is_counted_by_the_heads_that_keep_keys_and_values() -> None:
    sizes = {"totalSteps": 1, "promptsPerStep": 2, "maxResponseTokens": 100}
    spec = a_spec(training=sizes, dataset=a_job()["spec"]["dataset"] | {"maxPromptTokens": 28})
    found = estimate(spec, shape_of(CONFIG, 10))
    kv = next(m for m in found["memory"] if m["role"] == "decode")["parts"]["kv_peak"]
    assert kv == 8 * 128 * (2 * 10 * 2 * 64 * 4)  # 8 samples an actor, 128 tokens, both, 10 layers


def test_time_and_cost_come_from_a_job_alike_and_are_unknown_without_one() -> None:
    prices = [{"pool": "default", "perHour": 6.0}]
    spec = a_spec(prices=prices, decode={"replicas": 3}, learner={"ranks": 1})
    found = estimate(spec, None, [Alike("before", 10, 60.0)])
    assert (found["seconds"], found["costPerHour"]) == (180.0, 36.0)  # 3 steps; 6 processes
    assert found["cost"] == pytest.approx(1.8)
    unknown = estimate(a_spec(), None)
    assert (unknown["seconds"], unknown["cost"], unknown["costPerHour"]) == (None, None, None)


def test_parameters_are_counted_in_the_files_themselves(tmp_path: Path) -> None:
    shape = read_shape(write_model(tmp_path))
    assert shape is not None
    assert (shape.layers, shape.kv_heads) == (2, 2)
    assert 15_000 < shape.parameters < 30_000
    assert read_shape(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "algorithm", ["dapo", "gspo", "cispo", "rloo", "reinforce-plus-plus", "ppo"]
)
def test_whoever_learns_from_its_own_samples_has_actors_in_the_estimate(algorithm: str) -> None:
    spec = a_spec(algorithm={"type": algorithm}, decode={"replicas": 3})
    found = estimate(spec, shape_of(CONFIG, 1_000_000))
    assert found["members"]["decode"] == 3
    assert [role["role"] for role in found["memory"]] == ["learner", "decode"]


def test_a_critic_and_a_reference_are_in_the_account_of_memory() -> None:
    spec = a_spec(algorithm={"type": "ppo", "klCoefficient": 0.1})
    parts = estimate(spec, shape_of(CONFIG, 1_000_000))["memory"][0]["parts"]
    assert parts["critic"] == 4 * parts["parameters"]
    assert parts["reference"] == parts["parameters"]


def test_what_is_offloaded_is_counted_in_the_hosts_memory() -> None:
    shape = shape_of(CONFIG, 400_000_000)
    plain, *_ = estimate(a_spec(), shape)["memory"]
    device, host, *_ = estimate(a_spec(learner={"cpuOffload": True}), shape)["memory"]
    assert (device["role"], host["role"]) == ("learner", "learner (host)")
    assert host["parts"] == {n: plain["parts"][n] for n in ("parameters", "gradients", "optimiser")}
    kept = {n: size for n, size in device["parts"].items() if n != "gathered"}
    assert kept == {n: plain["parts"][n] for n in ("activations", "logits")}
    assert 0 < device["parts"]["gathered"] < 4 * 400_000_000


def test_adapters_alone_have_gradients_and_moments() -> None:
    training = {"totalSteps": 1, "lora": {"rank": 4, "targets": ["q_proj"]}}
    spec = a_spec(training=training, learner={"ranks": 1})
    shape = shape_of(CONFIG, 1_000_000)
    assert shape is not None
    parts = estimate(spec, shape)["memory"][0]["parts"]
    adapters = shape.layers * 4 * (shape.hidden + shape.heads * shape.head_size)
    assert parts["gradients"] == 4 * adapters
    assert parts["optimiser"] == 2 * parts["gradients"]
    assert parts["parameters"] == 4 * (1_000_000 + adapters)


async def test_a_dry_run_estimates_from_jobs_that_ran_here() -> None:
    world = World()
    async with world.client() as api:
        await api.post("/v1/jobs", json=a_job("demo"), headers={"Idempotency-Key": "k"})
        job = await world.cluster.get("RLHFJob", "default", "demo")
        for step in range(2):
            await put(world, a_report(step), uid=job.metadata.uid)
        answer = await api.post("/v1/jobs:validate?estimate=true", json=a_job("next"))
        plainly = await api.post("/v1/jobs:validate", json=a_job("next"))
    found = answer.json()["estimate"]
    assert (found["seconds"], found["parameters"]) == (30.0, None)  # 3 steps of 10 s
    assert "demo" in found["basis"]
    assert plainly.json()["estimate"] is None
