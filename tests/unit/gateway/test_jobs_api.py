from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from ebbtide.ports import Resource
from services.gateway.core.submit import KEY_LABEL
from tests.worlds.gateway import World, a_job, condition, key


async def test_a_submitted_job_is_an_object_with_defaults_filled_in() -> None:
    world = World()
    async with world.client() as api:
        answer = await api.post("/v1/jobs", json=a_job(), headers=key())
    stored = await world.cluster.get("RLHFJob", "default", "demo")
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/jobs/demo"
    assert answer.headers["etag"] == f'"{stored.metadata.resource_version}"'
    assert stored.spec["decode"]["replicas"] == 2


async def test_yaml_is_taken_by_its_content_type() -> None:
    world = World()
    async with world.client() as api:
        headers = {**key(), "Content-Type": "application/yaml; charset=utf-8"}
        text = yaml.safe_dump(a_job())
        answer = await api.post("/v1/jobs", content=text, headers=headers)
    assert answer.status_code == 201


async def test_the_same_key_and_payload_get_the_first_answer() -> None:
    world = World()
    async with world.client() as api:
        first = await api.post("/v1/jobs", json=a_job(), headers=key())
        text = yaml.safe_dump(a_job())
        headers = {**key(), "Content-Type": "application/yaml"}
        again = await api.post("/v1/jobs", content=text, headers=headers)
    assert again.json() == first.json()
    assert again.status_code == 201
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers


async def test_the_same_key_with_another_payload_is_refused() -> None:
    async with World().client() as api:
        await api.post("/v1/jobs", json=a_job(), headers=key())
        other = await api.post("/v1/jobs", json=a_job(seed=7), headers=key())
        renamed = await api.post("/v1/jobs", json=a_job("other"), headers=key())
    assert other.status_code == renamed.status_code == 422
    assert other.json()["type"].endswith("/idempotency-mismatch")
    assert renamed.json()["type"].endswith("/idempotency-mismatch")


async def test_a_name_of_another_submission_is_taken() -> None:
    async with World().client() as api:
        await api.post("/v1/jobs", json=a_job(), headers=key("one"))
        answer = await api.post("/v1/jobs", json=a_job(), headers=key("two"))
    assert answer.status_code == 409
    assert "taken by another job: choose another metadata.name" in answer.json()["detail"]


async def test_a_name_whose_job_is_on_its_way_out_is_free_soon() -> None:
    world = World()
    document = a_job() | {"metadata": {"name": "demo", "finalizers": ["rlhf.ebbtide.dev/pods"]}}
    await world.cluster.create(msgspec.convert(document, Resource))
    await world.cluster.delete("RLHFJob", "default", "demo")
    async with world.client() as api:
        answer = await api.post("/v1/jobs", json=a_job(), headers=key("two"))
    assert answer.status_code == 409
    assert "is on its way out" in answer.json()["detail"]
    assert answer.headers["Retry-After"] == "2"


async def test_a_job_without_a_name_gets_one_from_its_key() -> None:
    async with World().client() as api:
        one = await api.post("/v1/jobs", json=a_job(None), headers=key("one"))
        two = await api.post("/v1/jobs", json=a_job(None), headers=key("two"))
        again = await api.post("/v1/jobs", json=a_job(None), headers=key("one"))
    names = [answer.json()["metadata"]["name"] for answer in (one, two, again)]
    assert names[0] == names[2] != names[1]


async def test_two_gateways_with_one_request_make_one_job() -> None:
    world = World()
    async with world.client() as one, world.client() as two:
        first = await one.post("/v1/jobs", json=a_job(None), headers=key())
        second = await two.post("/v1/jobs", json=a_job(None), headers=key())
    assert first.json()["metadata"]["uid"] == second.json()["metadata"]["uid"]


async def test_a_second_request_while_the_first_runs_is_told_to_ask_again() -> None:
    async with World().client() as api:
        both = (api.post("/v1/jobs", json=a_job(), headers=key()) for _ in range(2))
        answers = await asyncio.gather(*both)
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    (refused,) = (answer for answer in answers if answer.status_code == 409)
    assert refused.json()["type"].endswith("/in-flight")
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, "idempotency-key-missing"),
        ({"Idempotency-Key": ""}, "malformed"),
        ({"Idempotency-Key": "x" * 256}, "malformed"),
        ({"Idempotency-Key": "a b"}, "malformed"),
    ],
)
async def test_a_submission_needs_a_key(headers: dict[str, str], kind: str) -> None:
    async with World().client() as api:
        answer = await api.post("/v1/jobs", json=a_job(), headers=headers)
    assert answer.status_code == 400
    assert answer.json()["type"].endswith(kind)


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"a: &x 1\nb: *x", "application/yaml", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "", 415),
        (b"", "application/yaml", 422),
        (b"[]", "application/json", 422),
        (b'{"metadata": 3}', "application/json", 422),
        (b'{"metadata": {"name": "\\ud800"}}', "application/json", 422),
    ],
)
async def test_a_body_that_is_no_job_is_a_clear_problem(
    body: bytes, content_type: str, status: int
) -> None:
    async with World().client() as api:
        for path in ("/v1/jobs", "/v1/jobs:validate"):
            headers = {**key(), "Content-Type": content_type}
            answer = await api.post(path, content=body, headers=headers)
            assert answer.status_code == status, path
            assert answer.headers["content-type"] == "application/problem+json"


async def test_validation_names_every_fault_and_stores_nothing() -> None:
    world = World()
    document = a_job(training={"totalSteps": 0}, bogus=1)
    async with world.client() as api:
        answer = await api.post("/v1/jobs:validate", json=document)
    assert answer.status_code == 422
    pointers = [fault["pointer"] for fault in answer.json()["errors"]]
    assert pointers == ["/spec/training/totalSteps", "/spec/bogus"]
    assert (await world.cluster.list("RLHFJob"))[0] == []


async def test_a_valid_dry_run_tells_what_is_worth_knowing() -> None:
    async with World().client() as api:
        answer = await api.post("/v1/jobs:validate", json=a_job())
    assert answer.json()["valid"] is True
    remarks = [remark["pointer"] for remark in answer.json()["warnings"]]
    assert "/spec/learner/pool" in remarks


async def test_a_submission_is_looked_at_like_a_dry_run() -> None:
    source = {"type": "reasoning_gym", "task": "word_sequence_reversel", "size": 1}
    async with World().client() as api:
        answer = await api.post("/v1/jobs", json=a_job(dataset={"train": source}), headers=key())
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == "/spec/dataset/train/task"
    assert "did you mean 'word_sequence_reversal'" in fault["detail"]


LONG = "/" + "n" * 300


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"model": {"uri": LONG}}, "/spec/model/uri"),
        ({"model": {"uri": "/tmp", "tokenizerUri": LONG}}, "/spec/model/tokenizerUri"),
        ({"dataset": {"train": {"type": "hf", "uri": LONG}}}, "/spec/dataset/train/uri"),
        ({"dataset": {"train": {"type": "jsonl", "uri": LONG}}}, "/spec/dataset/train/uri"),
        ({"dataset": {"train": {"type": "jsonl", "uri": "DEEP"}}}, "/spec/dataset/train/uri"),
    ],
)
async def test_places_and_rows_that_cannot_be_are_faults_of_the_document(
    tmp_path: Path, spec: dict[str, Any], pointer: str
) -> None:
    (tmp_path / "deep.jsonl").write_text('{"x":' + "[" * 100_000 + "]" * 100_000 + "}")
    text = json.dumps(a_job(**spec)).replace("DEEP", str(tmp_path / "deep.jsonl"))
    async with World(check_paths=True).client() as api:
        for path in ("/v1/jobs", "/v1/jobs:validate"):
            answer = await api.post(path, json=json.loads(text), headers=key())
            assert answer.status_code == 422
            assert pointer in [fault["pointer"] for fault in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("metadata", "pointer"),
    [
        ({"labels": {"rlhf.ebbtide.dev/job": "x"}}, "/metadata/labels/rlhf.ebbtide.dev~1job"),
        ({"labels": {"a b": "x"}}, "/metadata/labels/a b"),
        ({"labels": {"a": "x" * 64}}, "/metadata/labels/a"),
        ({"annotations": {"a": "x" * 5000}}, "/metadata/annotations/a"),
        ({"namespace": "other"}, "/metadata/namespace"),
    ],
)
async def test_metadata_that_the_store_would_refuse(metadata: Any, pointer: str) -> None:
    document = a_job()
    document["metadata"].update(metadata)
    async with World().client() as api:
        answer = await api.post("/v1/jobs:validate", json=document)
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


async def test_a_job_that_kubectl_made_shows_up() -> None:
    world = World()
    await world.put_job("by-hand", conditions=[condition("Running", reason="RolesReady")])
    async with world.client() as api:
        answer = await api.get("/v1/jobs/by-hand")
    assert (answer.json()["state"], answer.json()["reason"]) == ("Running", "RolesReady")


async def test_an_unchanged_job_is_not_sent_again() -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        tag = (await api.get("/v1/jobs/demo")).headers["etag"]
        same = await api.get("/v1/jobs/demo", headers={"If-None-Match": f"W/{tag}"})
        await api.post("/v1/jobs/demo/suspend")
        changed = await api.get("/v1/jobs/demo", headers={"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    assert changed.status_code == 200


async def test_lists_page_through_all_jobs_newest_first() -> None:
    world = World()
    for number in range(5):
        await world.put_job(f"job-{number}")
    names, after = [], None
    async with world.client() as api:
        for _ in range(3):
            query = {"limit": "2"} | ({"after": after} if after else {})
            page = (await api.get("/v1/jobs", params=query)).json()
            names += [job["metadata"]["name"] for job in page["items"]]
            after = page["next"]
    assert names == ["job-4", "job-3", "job-2", "job-1", "job-0"]
    assert after is None


async def test_lists_filter_by_state_and_label() -> None:
    world = World()
    await world.put_job("done", conditions=[condition("Complete")])
    await world.put_job("busy", conditions=[condition("Running")])
    labelled = a_job("mine")
    labelled["metadata"]["labels"] = {"team": "a"}
    async with world.client() as api:
        await api.post("/v1/jobs", json=labelled, headers=key())
        done = await api.get("/v1/jobs", params={"state": ["Complete", "Running"]})
        mine = await api.get("/v1/jobs", params={"label": "team=a"})
    assert [j["metadata"]["name"] for j in done.json()["items"]] == ["busy", "done"]
    assert [j["metadata"]["name"] for j in mine.json()["items"]] == ["mine"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"after": "!"}, 400),
        ({"after": "AAAA"}, 400),
        ({"after": "ä"}, 400),
        ({"label": "team"}, 400),
        ({"limit": "0"}, 422),
        ({"limit": "101"}, 422),
        ({"state": "Happy"}, 422),
    ],
)
async def test_a_query_that_cannot_be_answered(query: dict[str, str], status: int) -> None:
    async with World().client() as api:
        answer = await api.get("/v1/jobs", params=query)
    assert answer.status_code == status


async def test_a_cursor_belongs_to_its_filters() -> None:
    world = World()
    for number in range(3):
        await world.put_job(f"job-{number}")
    async with world.client() as api:
        after = (await api.get("/v1/jobs", params={"limit": 1})).json()["next"]
        answer = await api.get("/v1/jobs", params={"after": after, "state": "Pending"})
    assert answer.status_code == 400


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
async def test_changes_are_accepted_twice_with_the_same_answer(verb: str) -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        first = await api.post(f"/v1/jobs/demo/{verb}")
        again = await api.post(f"/v1/jobs/demo/{verb}")
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()


async def test_cancel_sets_the_annotation_and_suspend_the_field() -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        await api.post("/v1/jobs/demo/suspend")
        assert (await world.cluster.get("RLHFJob", "default", "demo")).spec["suspend"] is True
        await api.post("/v1/jobs/demo/resume")
        assert (await world.cluster.get("RLHFJob", "default", "demo")).spec["suspend"] is False
        await api.post("/v1/jobs/demo/cancel")
    job = await world.cluster.get("RLHFJob", "default", "demo")
    assert job.metadata.annotations["rlhf.ebbtide.dev/cancel"] == "true"


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
async def test_a_job_that_has_ended_cannot_be_changed(verb: str) -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    async with world.client() as api:
        answer = await api.post(f"/v1/jobs/demo/{verb}")
    assert answer.status_code == 409


async def test_a_cancelled_job_says_so_and_may_be_cancelled_again() -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        await api.post("/v1/jobs/demo/cancel")
        await world.end("demo", "Failed", "Cancelled")
        answer = await api.post("/v1/jobs/demo/cancel")
        resumed = await api.post("/v1/jobs/demo/resume")
    assert (answer.status_code, answer.json()["state"]) == (202, "Cancelled")
    assert resumed.status_code == 409


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume", None])
async def test_a_stale_if_match_changes_nothing(verb: str | None) -> None:
    world = World()
    before = await world.put_job(conditions=[condition("Running")])
    headers = {"If-Match": '"999"'}
    async with world.client() as api:
        if verb:
            answer = await api.post(f"/v1/jobs/demo/{verb}", headers=headers)
        else:
            answer = await api.delete("/v1/jobs/demo", params={"force": True}, headers=headers)
    assert answer.status_code == 412
    assert await world.cluster.get("RLHFJob", "default", "demo") == before


async def test_if_match_with_the_current_version_goes_through() -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        tag = (await api.get("/v1/jobs/demo")).headers["etag"]
        suspended = await api.post("/v1/jobs/demo/suspend", headers={"If-Match": tag})
        stale = await api.post("/v1/jobs/demo/resume", headers={"If-Match": tag})
        any_version = await api.post("/v1/jobs/demo/resume", headers={"If-Match": "*"})
        odd = await api.post("/v1/jobs/demo/resume", headers={"If-Match": "7"})
    codes = [a.status_code for a in (suspended, stale, any_version, odd)]
    assert codes == [202, 412, 202, 400]


async def test_only_an_ended_job_is_deleted_unless_forced() -> None:
    world = World()
    await world.put_job("busy", conditions=[condition("Running")])
    await world.put_job("done", conditions=[condition("Complete")])
    async with world.client() as api:
        refused = await api.delete("/v1/jobs/busy")
        forced = await api.delete("/v1/jobs/busy", params={"force": "true"})
        done = await api.delete("/v1/jobs/done")
        gone = await api.delete("/v1/jobs/done")
    assert [a.status_code for a in (refused, forced, done, gone)] == [409, 204, 204, 404]


async def test_every_method_of_a_path_is_named_when_another_is_tried() -> None:
    async with World().client() as api:
        answer = await api.put("/v1/jobs/demo", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET"


async def test_the_key_is_kept_as_a_hash() -> None:
    world = World()
    async with world.client() as api:
        await api.post("/v1/jobs", json=a_job(), headers=key("a-telling-key"))
    job = await world.cluster.get("RLHFJob", "default", "demo")
    assert "a-telling-key" not in json.dumps(dict(job.metadata.labels))
    assert job.metadata.labels[KEY_LABEL]
