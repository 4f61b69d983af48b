"""What broker and hot store hold can be lost: it costs time, never a sample (protocol.md 2, 9)."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
from redis import Redis

from benchmarks.progress import Progress
from benchmarks.stack import Stack, until
from tests.e2e.jobs import Material, judged
from tests.e2e.processes import alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def empty_broker(stack: Stack) -> None:
    """Kill the broker and delete its storage before the supervisor starts it again."""
    servers = stack.state / "servers"
    supervisor = stack.up.pids["up"]
    broker = json.loads((servers / "nats-server.json").read_text())["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(broker, signal.SIGKILL)
        until(lambda: not alive(broker), seconds=60, what="the broker's end")  # it writes till then
        shutil.rmtree(servers / "jetstream")
    finally:
        os.kill(supervisor, signal.SIGCONT)


def flush_hot_store(stack: Stack) -> None:
    servers = stack.state / "servers"
    port = json.loads((servers / "valkey-server.json").read_text())["port"]
    password = json.loads((servers / "credentials.json").read_text())["valkey"]
    with Redis(port=port, password=password) as client:
        client.flushall()


def test_a_job_survives_an_emptied_broker_and_a_flushed_hot_store(
    stack: Stack, material: Material
) -> None:
    job = stack.submit("emptied", material.spec())
    progress = Progress(stack.blobs, job.metadata.uid)
    until(lambda: progress.committed and progress.pending, seconds=240, what="work")
    flush_hot_store(stack)
    empty_broker(stack)
    before = progress.committed
    until(
        lambda: progress.committed > before or stack.ended(job.name),
        seconds=240,
        what="a step without the old broker",
    )
    ended = stack.finished(job.name, seconds=400)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
