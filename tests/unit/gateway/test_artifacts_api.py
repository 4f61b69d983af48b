from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from ebbtide import paths, usage
from ebbtide.errors import Corrupt
from ebbtide.ledger import encode_segment
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.usage import Usage
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    BatchManifest,
    Checkpointed,
    Dispatch,
    Error,
    Frozen,
    GroupPlan,
    Invalid,
    Manifest,
    Part,
    PolicyRef,
    PromptRef,
    Record,
    Ref,
    Rollout,
    Row,
    SampleKey,
    Score,
    Scored,
    Span,
    Spent,
    Stat,
    StepOpened,
    StepPlan,
    Timings,
    Value,
    encode,
    pack_floats,
    pack_ints,
    pack_mask,
)
from services.gateway.app.histories import Histories
from tests.worlds.gateway import World

UID = "uid-1"
POLICY = PolicyRef(n=0, attempt=1, digest="d0")
HAND = Dispatch(attempt=1, planner_epoch=1, seq=0)
NOWHERE = Ref("datasets/x", "0", 0)


def plan(step: int, *purposes: str) -> StepOpened:
    groups = tuple(
        GroupPlan(number, f"p{number}", PromptRef(NOWHERE, 0), 2, purpose, 1.0, 8)
        for number, purpose in enumerate(purposes)
    )
    return StepOpened(StepPlan(step, POLICY, groups, actors=1, data_cursor=0))


def rollout(key: SampleKey, tokens: list[int]) -> Rollout:
    return Rollout(
        key=key,
        dispatch=HAND,
        prompt_id=f"p{key.group}",
        prompt_tokens=pack_ints([0, 1]),
        tokens=pack_ints(tokens),
        logprobs=pack_floats([0.0] * len(tokens)),
        action_mask=pack_mask([1] * len(tokens)),
        spans=(Span(0, len(tokens), POLICY),),
        finish="stop",
        timings=Timings(0.0, 0.0, 0.1),
        actor="decode-0",
    )


async def accepted(world: World, group: int, index: int, *, step: int = 0) -> Accepted:
    key = SampleKey(UID, step, group, index)
    ref = await world.blobs.put(paths.rollouts(key, HAND), encode(rollout(key, [2, 3])))
    return Accepted(key, HAND, ref, POLICY, n_tokens=2, finish="stop")


def scored(record: Accepted, score: Score) -> Scored:
    return Scored(record.key, score, "scorer")


async def put_tokenizer(world: World, folder: str = paths.policy(UID, 1, 0)) -> None:
    tokenizer = Tokenizer(models.WordLevel({"say": 0, "it": 1, "hello": 2, "world": 3}, "say"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    await world.blobs.put(folder + "tokenizer.json", tokenizer.to_str().encode())


async def put_usage(world: World, pod: str, role: str, seconds: float, pool: str = "p") -> None:
    held = Usage(UID, role, pod, f"u-{pod}", pool, 1, 0.0, seconds, seconds)
    await world.blobs.put(paths.usage(UID, pod, held.uid), usage.encode(held))


async def get(world: World, path: str, **query: Any) -> Any:
    async with world.client() as api:
        answer = await api.get(f"/v1/jobs/demo/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("noun", ["metrics", "cost", "checkpoints", "samples", "events", "logs"])
async def test_a_job_that_does_not_exist_has_nothing(noun: str) -> None:
    async with World().client() as api:
        answer = await api.get(f"/v1/jobs/demo/{noun}")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("/not-found")


async def test_samples_carry_text_score_advantage_and_versions() -> None:
    world = World()
    await world.put_job()
    await put_tokenizer(world)
    one, two = await accepted(world, 0, 0), await accepted(world, 0, 1)
    row = Row(one.key, one.ref, 2, 0.5, 0, 0)
    batch = BatchManifest(UID, 1, 0, POLICY, (row,), 2, 1, ranks=1, microbatches=1)
    frozen = await world.blobs.put(paths.batch(UID, 1, 0), encode(batch))
    value = Value(1.0, (Part("task", 1.0, 1.0),))
    records: list[Record] = [plan(0, "train"), one, two, scored(one, value), Frozen(0, frozen)]
    await world.put_ledger(UID, records)
    first, second = (await get(world, "samples"))["items"]
    assert (first["prompt"], first["response"]) == ("say it", "hello world")
    assert first["score"]["total"] == 1.0
    assert first["advantage"] == 0.5
    assert first["versions"] == [{"start": 0, "end": 2, "version": 0, "digest": "d0"}]
    assert (second["score"]["kind"], second["advantage"]) == ("pending", None)


@pytest.mark.parametrize(
    ("score", "kind", "why"),
    [
        (Invalid("the verifier raised"), "invalid", "the verifier raised"),
        (Error("timeout", "10 s"), "error", "timeout: 10 s"),
        (Value(0.0, (), fault="format"), "value", ""),
    ],
)
async def test_a_score_is_shown_as_what_it_is(score: Score, kind: str, why: str) -> None:
    world = World()
    await world.put_job()
    one = await accepted(world, 0, 0)
    await world.put_ledger(UID, [plan(0, "train"), one, scored(one, score)])
    (item,) = (await get(world, "samples"))["items"]
    assert item["score"]["kind"] == kind
    assert item["score"].get("why", "") == why


async def test_samples_page_through_a_step_once_each_and_filter_by_purpose() -> None:
    world = World()
    await world.put_job()
    records = [await accepted(world, group, index) for group in (2, 0, 1) for index in (1, 0)]
    await world.put_ledger(UID, [plan(0, "train", "train", "eval"), *records])
    seen, after = [], None
    while True:
        query = {"limit": 4} | ({"after": after} if after else {})
        page = await get(world, "samples", **query)
        seen += [(item["group"], item["index"]) for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [(group, index) for group in (0, 1, 2) for index in (0, 1)]
    held_out = await get(world, "samples", purpose="eval")
    assert {item["group"] for item in held_out["items"]} == {2}


async def test_samples_of_a_step_come_from_wherever_its_records_lie() -> None:
    world = World()
    await world.put_job()
    early, late = await accepted(world, 0, 0), await accepted(world, 0, 1)
    other = await accepted(world, 0, 0, step=1)
    await world.put_ledger(UID, [plan(0, "train"), early], [plan(1, "train"), other], [late])
    assert len((await get(world, "samples", step=0))["items"]) == 2
    assert (await get(world, "samples"))["step"] == 1
    assert (await get(world, "samples", step=7))["items"] == []


async def test_an_adopted_rollout_is_read_from_where_it_was_adopted() -> None:
    world = World()
    await world.put_job()
    one = await accepted(world, 0, 0)
    moved = await world.blobs.put("jobs/elsewhere", encode(rollout(one.key, [3])))
    await world.put_ledger(UID, [plan(0, "train"), one, Adopted(one.key, 1, moved)])
    (item,) = (await get(world, "samples"))["items"]
    assert item["nTokens"] == 1


async def test_without_a_tokenizer_ids_are_shown() -> None:
    world = World()
    await world.put_job()
    await world.put_ledger(UID, [plan(0, "train"), await accepted(world, 0, 0)])
    (item,) = (await get(world, "samples"))["items"]
    assert item["response"] == "2 3"


async def test_the_tokenizer_of_a_policy_that_was_given_is_read() -> None:
    world = World()
    await world.put_job()
    await put_tokenizer(world, paths.base(UID))
    await world.put_ledger(UID, [plan(0, "train"), await accepted(world, 0, 0)])
    (item,) = (await get(world, "samples"))["items"]
    assert item["response"] == "hello world"


async def test_a_reader_sees_what_was_written_since_it_last_looked() -> None:
    world = World()
    await world.put_job()
    first, second = await accepted(world, 0, 0), await accepted(world, 0, 1)
    await world.put_ledger(UID, [plan(0, "train"), first])
    async with world.client() as api:
        before = (await api.get("/v1/jobs/demo/samples")).json()["items"]
        await world.put_ledger(UID, [plan(0, "train"), first], [second])
        after = (await api.get("/v1/jobs/demo/samples")).json()["items"]
    assert (len(before), len(after)) == (1, 2)


async def test_metrics_are_the_step_reports_in_order() -> None:
    world = World()
    await world.put_job()
    for step in range(12):
        await world.blobs.put(paths.step_report(UID, step), json.dumps({"step": step}).encode())
    page = await get(world, "metrics", limit=10)
    rest = await get(world, "metrics", after=page["next"])
    assert [item["step"] for item in page["items"] + rest["items"]] == list(range(12))
    assert rest["next"] is None


async def put_report(world: World, step: int, decision: dict[str, Any] | None) -> None:
    report = {"step": step, "cost": {"currency": "EUR"}, "decision": decision}
    await world.blobs.put(paths.step_report(UID, step), json.dumps(report).encode())


async def test_the_decision_of_a_step_is_told_with_its_currency() -> None:
    world = World()
    await world.put_job()
    await put_report(world, 3, {"rule": "kept", "actors": 4})
    found = await get(world, "steps/3/decision")
    assert found == {"step": 3, "currency": "EUR", "decision": {"rule": "kept", "actors": 4}}


@pytest.mark.parametrize(("step", "why"), [(0, "decoded nothing"), (1, "not committed yet")])
async def test_a_step_without_a_decision_says_why(step: int, why: str) -> None:
    world = World()
    await world.put_job()
    await put_report(world, 0, None)
    async with world.client() as api:
        answer = await api.get(f"/v1/jobs/demo/steps/{step}/decision")
    assert answer.status_code == 404
    assert why in answer.json()["detail"]


async def test_cost_joins_held_time_with_causes() -> None:
    world = World()
    await world.put_job()
    price = {"spec": {"prices": [{"pool": "p", "perHour": 36.0}]}}
    await world.cluster.patch("RLHFJob", "default", "demo", price)
    await put_usage(world, "decode-0", "decode", 100.0)
    await world.put_ledger(UID, [Spent(0, "decode", "decode-0", "busy", 60.0)])
    found = await get(world, "cost")
    parts = {(part["role"], part["cause"]): part for part in found["parts"]}
    assert parts["decode", "busy"]["cost"] == pytest.approx(0.6)
    assert parts["decode", "unattributed"]["seconds"] == pytest.approx(40.0)
    assert found["total"] == pytest.approx(1.0)


async def test_cost_is_grouped_by_capacity_type() -> None:
    world = World()
    await world.put_job()
    price = {"spec": {"prices": [{"pool": "p", "perHour": 36.0, "capacityType": "spot"}]}}
    await world.cluster.patch("RLHFJob", "default", "demo", price)
    await put_usage(world, "decode-0", "decode", 100.0)
    await put_usage(world, "learner-0", "learner", 50.0, pool="other")
    found = await get(world, "cost", by="capacity")
    sold = {part["capacity"]: (part["seconds"], part["cost"]) for part in found["parts"]}
    assert sold == {"spot": (100.0, pytest.approx(1.0)), "unknown": (50.0, None)}


async def test_an_unknown_price_stays_unknown() -> None:
    world = World()
    await world.put_job()
    price = {"spec": {"prices": [{"pool": "p", "perHour": 36.0}]}}
    await world.cluster.patch("RLHFJob", "default", "demo", price)
    await put_usage(world, "decode-0", "decode", 100.0)
    await put_usage(world, "learner-0", "learner", 50.0, pool="other")
    found = await get(world, "cost")
    assert found["total"] is None
    assert found["byRole"] == {"decode": pytest.approx(1.0), "learner": None}
    assert (found["known"], found["unpricedSeconds"]) == (pytest.approx(1.0), 50.0)


async def test_checkpoints_are_newest_first_and_those_that_retention_removed_are_left_out() -> None:
    world = World()
    await world.put_job()
    records: list[Record] = []
    for step in (10, 20, 30):
        index = Ref(f"{paths.policy(UID, 1, step)}index.msgpack", "0", 1)
        counters = (Stat("samples", step * 1.0),)
        manifest = Manifest(UID, 1, None, step, POLICY, index, (), NOWHERE, step, counters)
        ref = await world.blobs.put(paths.manifest(UID, 1, step), encode(manifest))
        records.append(Checkpointed(step, ref))
    await world.put_ledger(UID, records)
    await world.blobs.delete(paths.manifest(UID, 1, 10))
    items = (await get(world, "checkpoints"))["items"]
    assert [item["step"] for item in items] == [30, 20]
    assert items[0]["policyPath"] == f"jobs/{UID}/attempts/0001/policies/00000030"
    assert items[0]["policyUri"] == f"memory:///{items[0]['policyPath']}"
    assert items[0]["counters"] == {"samples": 30.0}


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("file:///var/my%20blobs", "/var/my blobs/jobs/u"),
        ("s3://bucket/some/", "s3://bucket/some/jobs/u"),
        ("gs://bucket", "gs://bucket/jobs/u"),
        ("memory:///", "memory:///jobs/u"),
    ],
)
def test_a_folder_is_named_as_other_programs_take_it(store: str, found: str) -> None:
    assert paths.outside(store, "jobs/u") == found


async def test_the_tokenizer_of_the_model_serves_once_publications_are_gone(tmp_path: Path) -> None:
    world = World()
    await world.put_job()
    vocabulary = {"a": 0, "b": 1, "c": 2, "d": 3}
    Tokenizer(models.WordLevel(vocabulary, "a")).save(str(tmp_path / "tokenizer.json"))
    model = {"spec": {"model": {"uri": str(tmp_path)}}}
    await world.cluster.patch("RLHFJob", "default", "demo", model)
    await world.put_ledger(UID, [plan(0, "train"), await accepted(world, 0, 0)])
    (item,) = (await get(world, "samples"))["items"]
    assert item["response"] == "c d"


async def test_a_damaged_segment_is_named() -> None:
    blobs = FakeBlobs()
    path = paths.segment("u", 0)
    whole = encode_segment(0, bytes(16), [Abandoned(SampleKey("u", 0, 0, 0), "deadline")])
    await blobs.put(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(Corrupt, match=f"{path}: ledger record at byte 48 is damaged"):
        await Histories(blobs=blobs).of("u")
