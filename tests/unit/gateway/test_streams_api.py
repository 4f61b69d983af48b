from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ebbtide import labels, paths, usage
from ebbtide.ports import Meta, Resource
from ebbtide.sse import parse_stream
from ebbtide.usage import Usage
from services.gateway.app.sse import EventStream, Streams
from services.gateway.core.problems import Problem
from services.gateway.core.sse import Frame
from tests.worlds.gateway import World, condition

UID = "uid-1"
STREAM = {"Accept": "text/event-stream"}


async def put_report(world: World, step: int) -> None:
    report = {"step": step, "rewards": {"mean": step / 10}}
    await world.blobs.put(paths.step_report(UID, step), json.dumps(report).encode())


async def put_pod(world: World, role: str, name: str, *lines: str) -> None:
    marks = {labels.JOB: "demo", labels.ROLE: role}
    await world.cluster.create(Resource("v1", "Pod", Meta(name, labels=marks)))
    world.cluster.logs_of[name] = [line.encode() for line in lines]


async def stream(world: World, path: str, **headers: str) -> list[tuple[str, Any, str]]:
    """All frames of a stream that ends by itself."""
    async with world.client() as api:
        answer = await api.get(f"/v1/jobs/demo/{path}", headers={**STREAM, **headers})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    lines = iter(answer.text.splitlines())
    return [(event, json.loads(data), ident) for event, data, ident in parse_stream(lines)]


async def events(world: World, after: str | None = None) -> Any:
    async with world.client() as api:
        query = {"after": after} if after else {}
        return (await api.get("/v1/jobs/demo/events", params=query)).json()


async def test_events_tell_conditions_steps_and_the_end() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete", reason="AllStepsDone")])
    await put_report(world, 0)
    await put_report(world, 1)
    found = (await events(world))["items"]
    assert [event["type"] for event in found] == ["state", "step", "step", "end"]
    assert found[1]["message"] == "step 0 committed, mean reward 0.000"
    assert found[-1]["data"] == {"state": "Complete"}


async def put_scores(world: World, step: int, valued: int, **faults: int) -> None:
    report = {
        "step": step,
        "samples": {"valued": valued + 2, "invalid": 0},
        "evaluation": {"mean": 0.0, "samples": 2},
        "rewards": {"mean": 0.0, "faults": faults},
    }
    await world.blobs.put(paths.step_report(UID, step), json.dumps(report).encode())


async def messages(world: World) -> list[str]:
    """Of the stream's last two events, and of the job itself."""
    last = [data["message"] for _, data, _ in (await stream(world, "events"))[-2:]]
    async with world.client() as api:
        return [*last, (await api.get("/v1/jobs/demo")).json()["message"]]


async def test_an_end_with_mostly_faulted_scores_says_so() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete", message="all steps are done")])
    await put_scores(world, 0, 4, crash=3)
    await put_scores(world, 1, 4, crash=1, memory=1)
    words = "all steps are done; 5 of 8 scores of the last 2 steps were faults (crash 4, memory 1)"
    assert await messages(world) == [words] * 3


async def test_half_of_the_scores_may_be_faults_without_a_word() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete", message="all steps are done")])
    await put_scores(world, 0, 4, crash=2)
    assert await messages(world) == ["all steps are done"] * 3


async def test_each_event_id_goes_on_right_behind_it() -> None:
    world = World()
    await world.put_job(
        conditions=[condition("Accepted", lastTransitionTime="1"), condition("Complete")]
    )
    for step in range(3):
        await put_report(world, step)
    whole = (await events(world))["items"]
    for number, event in enumerate(whole):
        rest = (await events(world, event["id"]))["items"]
        assert [e["id"] for e in rest] == [e["id"] for e in whole[number + 1 :]]


async def test_a_cursor_without_news_stays_good_for_later() -> None:
    world = World()
    await world.put_job(conditions=[condition("Running")])
    first = await events(world)
    assert (await events(world, first["next"]))["items"] == []
    await put_report(world, 0)
    assert [e["type"] for e in (await events(world, first["next"]))["items"]] == ["step"]


async def test_a_condition_that_changed_is_told_again_and_one_that_did_not_is_not() -> None:
    world = World()
    accepted = condition("Accepted")
    await world.put_job(conditions=[accepted, condition("Running", "False")])
    cursor = (await events(world))["next"]
    changed = [accepted, condition("Running", lastTransitionTime="2026-01-02T00:00:00Z")]
    await world.cluster.patch_status("RLHFJob", "default", "demo", {"conditions": changed})
    (event,) = (await events(world, cursor))["items"]
    assert event["data"] == {"type": "Running", "status": "True"}


async def note(world: World, name: str, uid: str = UID, **spec: Any) -> None:
    meta = Meta(name, labels={labels.JOB: "demo"})
    spec = {"involvedObject": {"uid": uid}, "reason": "PodFailed", **spec}
    await world.cluster.create(Resource("v1", "Event", meta, spec=spec))


async def test_what_the_operator_noted_is_told_once_and_again_when_it_recurs() -> None:
    world = World()
    await world.put_job()
    await note(world, "b", message="first")
    await note(world, "a", message="second")
    await note(world, "c", uid="an-earlier-job", message="not ours")
    page = await events(world)
    assert [event["message"] for event in page["items"]] == ["first", "second"]
    assert (await events(world, page["next"]))["items"] == []
    await world.cluster.patch("Event", "default", "b", {"spec": {"count": 2}})
    (again,) = (await events(world, page["next"]))["items"]
    assert (again["type"], again["data"]["count"]) == ("note", 2)


async def test_a_lost_report_is_passed_over_once_the_next_one_is_there() -> None:
    world = World()
    await world.put_job()
    await put_report(world, 1)
    found = (await events(world))["items"]
    assert [event["data"]["step"] for event in found] == [1]
    assert (await events(world, found[-1]["id"]))["items"] == []


async def test_a_cursor_of_an_earlier_job_of_that_name_starts_anew() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    cursor = (await events(world))["items"][-1]["id"]
    await world.cluster.delete("RLHFJob", "default", "demo")
    await world.put_job(conditions=[condition("Running")])
    assert [e["type"] for e in (await events(world, cursor))["items"]] == ["state"]


async def test_a_stream_ends_with_the_job_and_resumes_by_id() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    await put_report(world, 0)
    whole = await stream(world, "events")
    assert [event for event, _, _ in whole] == ["state", "step", "progress", "end"]
    resumed = await stream(world, "events", **{"Last-Event-ID": whole[0][2]})
    assert resumed == whole[1:]


async def test_a_stream_that_had_ended_says_so() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    last = (await stream(world, "events"))[-1][2]
    async with world.client() as api:
        headers = {**STREAM, "Last-Event-ID": last}
        answer = await api.get("/v1/jobs/demo/events", headers=headers)
    assert answer.status_code == 204


async def test_a_stream_shows_progress_until_the_job_ends() -> None:
    world = World()
    await world.put_job(progress={"step": 0})

    async def run() -> None:
        for step in range(3):
            await put_report(world, step)
            progress = {"progress": {"step": step + 1}}
            await world.cluster.patch_status("RLHFJob", "default", "demo", progress)
            await asyncio.sleep(0.01)
        await world.end("demo")

    frames, _ = await asyncio.gather(stream(world, "events"), run())
    kinds = [event for event, _, _ in frames]
    assert kinds.count("step") == 3
    assert kinds[-1] == "end"
    steps = [data["data"]["status"]["progress"]["step"] for e, data, _ in frames if e == "progress"]
    assert steps == sorted(steps)


async def test_a_stream_ends_when_the_job_is_deleted() -> None:
    world = World()
    await world.put_job()

    async def remove() -> None:
        await asyncio.sleep(0.01)
        await world.cluster.delete("RLHFJob", "default", "demo")

    frames, _ = await asyncio.gather(stream(world, "events"), remove())
    assert frames[-1][0] == "end"
    assert frames[-1][1]["reason"] == "Deleted"


@pytest.mark.parametrize("path", ["events", "logs"])
async def test_a_cursor_that_nobody_gave_is_refused(path: str) -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        headers = {**STREAM, "Last-Event-ID": "nonsense"}
        answer = await api.get(f"/v1/jobs/demo/{path}", headers=headers)
    assert answer.status_code == 400


# --- logs ---------------------------------------------------------------------------------------


async def test_logs_come_from_living_and_ended_pods_by_role_and_pod() -> None:
    world = World()
    await world.put_job()
    await put_pod(world, "planner", "demo-planner-1", "a", "b")
    world.cluster.logs_of["demo-decode-0"] = [b"gone"]
    ended = Usage(UID, "decode", "demo-decode-0", "u", "p", 1, 0.0, 1.0, 1.0)
    await world.blobs.put(paths.usage(UID, ended.pod, ended.uid), usage.encode(ended))
    async with world.client() as api:
        whole = (await api.get("/v1/jobs/demo/logs")).json()
        last = (await api.get("/v1/jobs/demo/logs", params={"tail": 1, "role": "planner"})).json()
        unknown = await api.get("/v1/jobs/demo/logs", params={"pod": "nope"})
    assert [(line["role"], line["text"]) for line in whole["items"]] == [
        ("decode", "gone"),
        ("planner", "a"),
        ("planner", "b"),
    ]
    assert [line["text"] for line in last["items"]] == ["b"]
    assert unknown.status_code == 404


async def test_logs_of_other_jobs_are_not_shown() -> None:
    world = World()
    await world.put_job()
    other = {labels.JOB: "other", labels.ROLE: "planner"}
    await world.cluster.create(Resource("v1", "Pod", Meta("other-planner", labels=other)))
    world.cluster.logs_of["other-planner"] = [b"secret"]
    async with world.client() as api:
        assert (await api.get("/v1/jobs/demo/logs")).json()["pods"] == []
        answer = await api.get("/v1/jobs/demo/logs", params={"pod": "other-planner"})
    assert answer.status_code == 404


async def test_a_log_stream_gives_all_lines_and_resumes_behind_the_last() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    await put_pod(world, "planner", "p", "one", "two")
    await put_pod(world, "decode", "d", "three")
    whole = await stream(world, "logs")
    assert sorted(data["text"] for event, data, _ in whole if event == "line") == [
        "one",
        "three",
        "two",
    ]
    resumed = await stream(world, "logs", **{"Last-Event-ID": whole[0][2]})
    rest = [data for event, data, _ in whole[1:] if event == "line"]
    again = [data for event, data, _ in resumed if event == "line"]
    assert sorted(map(str, again)) == sorted(map(str, rest))


async def test_a_pod_that_writes_late_is_followed_too() -> None:
    world = World()
    await world.put_job()
    await put_pod(world, "planner", "p")
    del world.cluster.logs_of["p"]

    async def write() -> None:
        await asyncio.sleep(0.01)
        world.cluster.logs_of["p"] = [b"late"]
        await asyncio.sleep(0.01)
        await world.end("demo")

    frames, _ = await asyncio.gather(stream(world, "logs"), write())
    assert [data["text"] for event, data, _ in frames if event == "line"] == ["late"]


async def test_a_line_that_is_not_utf8_is_shown_as_well_as_it_can_be() -> None:
    world = World()
    await world.put_job()
    await put_pod(world, "planner", "p")
    world.cluster.logs_of["p"] = [b"\xff broken"]
    async with world.client() as api:
        (line,) = (await api.get("/v1/jobs/demo/logs")).json()["items"]
    assert line["text"] == "\ufffd broken"


# --- the stream itself --------------------------------------------------------------------------


class Wire:
    """An ASGI client: what it was sent; it may stop reading or go away."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.ended = False
        self._moved = asyncio.Condition()

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message.get("body", b""))
        self.ended = self.ended or message.get("more_body") is False
        async with self._moved:
            self._moved.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self._moved:
            await self._moved.wait_for(holds)

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def frames(queue: asyncio.Queue[Frame]) -> Any:
    async def source() -> Any:
        while True:
            yield await queue.get()

    return source()


async def serve(wire: Wire, queue: asyncio.Queue[Frame], closing: asyncio.Event, **kw: Any) -> None:
    limits = {"heartbeat": 0.01, "send_seconds": 5.0, "streams": Streams(1), **kw}
    answer = EventStream(frames(queue), closing=closing, **limits)
    await answer({"type": "http"}, wire.receive, wire.send)


async def test_a_quiet_stream_sends_heartbeats_and_still_delivers() -> None:
    wire, queue, closing = Wire(), asyncio.Queue[Frame](), asyncio.Event()
    task = asyncio.create_task(serve(wire, queue, closing))
    await wire.until(lambda: wire.sent.count(b": ping\n\n") >= 4)
    await queue.put(Frame("step", b"{}", "7"))
    await wire.until(lambda: b"id: 7\nevent: step\ndata: {}\n\n" in wire.sent)
    closing.set()
    await task


async def test_a_draining_process_ends_its_streams_properly() -> None:
    wire, closing = Wire(), asyncio.Event()
    closing.set()
    await serve(wire, asyncio.Queue(), closing)
    assert wire.ended


async def test_a_client_that_went_away_frees_its_place() -> None:
    wire, streams = Wire(), Streams(1)
    wire.gone.set()
    await serve(wire, asyncio.Queue(), asyncio.Event(), streams=streams)
    assert streams.open == 0


async def test_a_client_that_takes_nothing_is_cut() -> None:
    wire, streams = Wire(), Streams(1)
    wire.reads.clear()
    await asyncio.wait_for(
        serve(wire, asyncio.Queue(), asyncio.Event(), streams=streams, send_seconds=0.02), 5.0
    )
    assert (streams.open, wire.sent) == (0, [])


def test_one_stream_too_many_is_refused() -> None:
    streams = Streams(1)
    streams.enter()
    with pytest.raises(Problem, match="Too many streams"):
        streams.enter()
    streams.leave()
    streams.enter()


def test_a_frame_is_one_line_of_data() -> None:
    assert msgspec.json.encode({"a": "x\ny"}) == b'{"a":"x\\ny"}'
