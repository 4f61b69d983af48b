"""Logs of pods that the cluster has forgotten are read like those of living ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide import labels, paths, usage
from ebbtide.errors import Refused, Temporary
from ebbtide.ports import Meta, Resource
from ebbtide.sse import parse_stream
from ebbtide.testing.cluster import FakeCluster
from ebbtide.usage import Usage
from services.gateway.core.lines import Line, PodRole, in_order, joined, of_step, stamped
from tests.worlds.gateway import World, condition

UID = "uid-1"


def said(second: int, event: str) -> bytes:
    at = f"2026-11-30T10:00:{second:02d}.5Z"
    return json.dumps({"at": at, "level": "info", "event": event}, separators=(",", ":")).encode()


async def ended(
    world: World, pod: str, *parts: list[bytes], tail: list[bytes] | None = None
) -> None:
    """A pod that is gone, with what was kept of its log."""
    held = Usage(UID, "decode", pod, "u", "p", 1, 0.0, 1.0, 1.0)
    await world.blobs.put(paths.usage(UID, pod, "u"), usage.encode(held))
    for number, lines in enumerate(parts):
        if lines:
            data = b"\n".join(lines) + b"\n"
            await world.blobs.put(paths.log_part(UID, "decode", pod, number), data)
    if tail:
        await world.blobs.put(paths.log_tail(UID, "decode", pod), b"\n".join(tail))


async def living(world: World, pod: str, *lines: bytes) -> None:
    marks = {labels.JOB: "demo", labels.ROLE: "planner"}
    await world.cluster.create(Resource("v1", "Pod", Meta(pod, labels=marks)))
    world.cluster.logs_of[pod] = list(lines)


async def events(world: World, **query: Any) -> list[str]:
    async with world.client() as api:
        found = (await api.get("/v1/jobs/demo/logs", params=query)).json()["items"]
    return [json.loads(one["text"])["event"] for one in found]


async def followed(world: World, tail: int = 200, **more: Any) -> list[str]:
    async with world.client() as api:
        headers = {"Accept": "text/event-stream"}
        answer = await api.get("/v1/jobs/demo/logs", headers=headers, params={"tail": tail} | more)
    frames = parse_stream(iter(answer.text.splitlines()))
    return [json.loads(json.loads(d)["text"])["event"] for kind, d, _ in frames if kind == "line"]


async def test_living_and_ended_pods_are_read_in_one_order_of_time() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    await living(world, "demo-planner-1", said(1, "one"), said(4, "four"))
    await ended(world, "demo-decode-0", [said(2, "two")], [said(3, "three")], [said(5, "five")])
    assert await events(world) == ["one", "two", "three", "four", "five"]
    assert await events(world, role="decode", tail=2) == ["three", "five"]
    assert await events(world, role="decode", tail=3) == ["two", "three", "five"]
    assert await followed(world) == ["one", "two", "three", "four", "five"]
    assert await followed(world, tail=0) == []


@pytest.mark.parametrize(
    ("raw", "holds"),
    [
        (b'{"event":"x","step":3}', True),
        (b'{"event":"x","step":4}', False),
        (b'{"event":"x","key":{"step_issued":3,"group":0}}', True),
        (b'{"event":"x","key":{"step_issued":4}}', False),
        (b'{"event":"x","key":"step_issued"}', False),
        (b"Traceback of step 3", False),
        (b'{"event":"x","step":3,"key":"weights"}', True),
    ],
)
def test_a_line_is_of_the_step_that_it_or_its_sample_names(raw: bytes, holds: bool) -> None:
    assert of_step(raw, 3) == holds
    assert of_step(raw, None)


async def test_the_last_lines_of_a_step_are_given_and_followed() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    lines = [b'{"event":"a","step":1}', b'{"event":"b","key":{"step_issued":1}}']
    await living(world, "demo-planner-1", *lines, b'{"event":"c","step":2}', b"crash")
    assert await events(world, step=1) == ["a", "b"]
    assert await events(world, step=1, tail=1) == ["b"]
    assert await followed(world, step=1) == ["a", "b"]
    assert await followed(world, tail=1, step=2) == ["c"]


class Late(list[bytes]):
    """Lines that come once somebody has looked."""

    looks = 0

    def __iter__(self) -> Iterator[bytes]:
        self.looks += 1
        return iter(()) if self.looks == 1 else super().__iter__()


async def test_of_lines_that_come_later_those_of_the_step_are_followed() -> None:
    world = World()
    await world.put_job(conditions=[condition("Complete")])
    await living(world, "p")
    world.cluster.logs_of["p"] = Late([b'{"event":"a","step":1}', b'{"event":"b","step":2}'])
    assert await followed(world, step=2) == ["b"]


async def test_the_last_lines_of_a_failed_pod_follow_what_it_had_written() -> None:
    world = World()
    await world.put_job()
    kept = [said(1, "start"), said(2, "work")]
    await ended(world, "d", kept, tail=[said(2, "work"), said(3, "killed")])
    assert await events(world) == ["start", "work", "killed"]


async def test_a_part_that_is_gone_is_said_where_it_was() -> None:
    world = World()
    await world.put_job()
    await ended(world, "d", [said(1, "start")], [], [], [said(9, "end")])
    assert await events(world) == ["start", "a part of this log is gone", "end"]
    await ended(world, "d", [said(1, "start")], [], [], [said(9, "end")], [said(9, "over")])
    assert await events(world) == ["start", "a part of this log is gone", "end", "over"]


class Deaf(FakeCluster):
    """Its nodes do not answer."""

    error: Exception = Temporary("node is lost")

    async def logs(
        self, namespace: str, pod: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        raise self.error
        yield b""


@pytest.mark.parametrize("error", [Temporary("node is lost"), Refused("no such container")])
async def test_a_log_that_the_cluster_cannot_give_is_read_from_what_was_kept(
    error: Exception,
) -> None:
    world = World()
    world.cluster = Deaf()
    world.cluster.error = error
    await world.put_job()
    await ended(world, "d", [said(1, "start")])
    assert await events(world) == ["start"]


async def test_a_log_that_nobody_can_give_now_is_said_to_be_so() -> None:
    world = World()
    world.cluster = Deaf()
    await world.put_job()
    await ended(world, "d")
    assert await events(world) == ["this log cannot be read now"]


LINES = st.lists(st.integers(0, 59), max_size=10)


@given(st.lists(LINES, max_size=4))
def test_merged_logs_keep_every_line_and_each_pods_own_order(logs: list[list[int]]) -> None:
    pods = [PodRole("decode", str(n)) for n in range(len(logs))]
    whole: list[list[Line]] = [
        stamped(pod, enumerate(said(second, "x") for second in seconds))
        for pod, seconds in zip(pods, logs, strict=True)
    ]
    merged = list(in_order(whole))
    for pod, lines in zip(pods, whole, strict=True):
        assert [line for line in merged if line.source == pod] == lines
    if all(seconds == sorted(seconds) for seconds in logs):
        assert [line.at for line in merged] == sorted(line.at for line in merged)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 12))
def test_last_lines_that_overlap_are_shown_once(written: int, seen_from: int, more: int) -> None:
    whole = [b"line %d" % n for n in range(written + more)]
    assert joined(whole[:written], whole[min(seen_from, written) :]) == whole


def test_what_only_the_output_has_comes_before_the_line_that_followed_it() -> None:
    kept = [b"a", b"b"]
    assert joined(kept, [b"a library complains", b"b", b"c"]) == [
        b"a",
        b"a library complains",
        b"b",
        b"c",
    ]
