"""Logs of real processes and threads reach the blob store, whatever ends them."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from ebbtide import paths
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.log_keeper import LogKeeper
from ebbtide.kept_logs import Backlog
from ebbtide.testing.blobs import FAIL, FakeBlobs

QUIET = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(50))
PROCESS = """
import asyncio, sys
from ebbtide import logs
from ebbtide.kept_logs import Backlog
from ebbtide.metrics import new_registry
from ebbtide.runtime import run
from ebbtide.settings import RoleSettings

async def body(process):
    process.log.info("sample done", sample="s/1/2")
    await process.drain.wait()

settings = RoleSettings(
    blobs_url=sys.argv[1], job="j", job_uid="u", pod="j-decode-0", log_seconds=0.05)
kept = Backlog(role="decode")
log = logs.setup("info", kept=kept, role="decode")
sys.exit(run(body, settings=settings, registry=new_registry(), log=log, kept=kept))
"""


def keeper(blobs: FakeBlobs, kept: Backlog, seconds: float = 60.0) -> LogKeeper:
    return LogKeeper(
        backlog=kept, blobs=blobs, place=("u", "p"), most_bytes=1000, seconds=seconds, log=QUIET
    )


@contextmanager
def process(store: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROCESS, store.as_uri()]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


async def events(store: Path) -> list[str]:
    """Of the process that writes to this store, so far."""
    blobs = open_blobs(store.as_uri())
    found = await blobs.list(paths.pod_logs("u", "decode", "j-decode-0"))
    return [json.loads(x)["event"] for path in found for x in (await blobs.get(path)).splitlines()]


async def test_a_killed_process_has_left_its_log_and_its_successor_adds_to_it(
    tmp_path: Path,
) -> None:
    for turn, end in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
        with process(tmp_path) as running:
            while (await events(tmp_path)).count("sample done") < turn:
                assert running.poll() is None
                await asyncio.sleep(0.02)
            running.send_signal(end)
            running.wait()
    found = await events(tmp_path)
    assert found.count("process started") == 2
    assert found[-2:] == ["signal received", "process ended"]


async def test_what_the_store_did_not_take_comes_with_the_next_lines() -> None:
    blobs, kept = FakeBlobs(outcomes=iter([FAIL, FAIL])), Backlog(role="decode")
    writing = keeper(blobs, kept, seconds=0.01)
    kept.add("first\n")
    writing.start()
    while not blobs.objects:
        await asyncio.sleep(0.01)
    kept.add("last\n")
    writing.close()
    assert blobs.objects == {paths.log_part("u", "decode", "p", 0): b"first\nlast\n"}


async def test_a_flood_leaves_a_line_that_counts_what_was_left_out() -> None:
    blobs, kept = FakeBlobs(), Backlog(role="decode", limit=300)
    for _ in range(100):
        kept.add("x" * 29 + "\n")
    writing = keeper(blobs, kept)
    writing.start()
    writing.close()
    (said,) = blobs.objects.values()
    assert json.loads(said.splitlines()[-1])["lines"] == 90
