"""What the local object store adds: several processes, kill -9, files."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import SqliteCluster, log_file, open_cluster
from ebbtide.adapters.cluster_sqlite.pod_logs import rotate
from ebbtide.errors import Conflict, Permanent
from ebbtide.ports import Meta, Resource

COUNT = """
import asyncio, sys
from pathlib import Path
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.errors import Conflict

async def count(path, times):
    async with open_cluster(Path(path), clock=SystemClock()) as cluster:
        print("open", flush=True)
        while times:
            now = await cluster.get("Counter", "default", "c")
            value = {"n": now.status.get("n", 0) + 1}
            try:
                await cluster.patch_status(
                    "Counter", "default", "c", value, now.metadata.resource_version)
                times -= 1
            except Conflict:
                continue

asyncio.run(count(sys.argv[1], int(sys.argv[2])))
"""
COUNTER = Resource(api_version="v1", kind="Counter", metadata=Meta(name="c"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SqliteCluster]:
    async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()) as opened:
        yield opened


def counting(path: Path, times: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", COUNT, str(path), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def test_concurrent_processes_lose_no_update(cluster: SqliteCluster, tmp_path: Path) -> None:
    await cluster.create(COUNTER)
    workers = [counting(tmp_path / "o.sqlite", 50) for _ in range(3)]
    for worker in workers:
        await asyncio.to_thread(worker.communicate)
    assert (await cluster.get("Counter", "default", "c")).status == {"n": 150}


async def test_a_watch_sees_another_process(cluster: SqliteCluster, tmp_path: Path) -> None:
    made = await cluster.create(COUNTER)
    worker = counting(tmp_path / "o.sqlite", 1)
    async with asyncio.timeout(20):
        async for change in cluster.watch(("Counter",), None, made.metadata.resource_version):
            assert change.resource.status == {"n": 1}
            break
    await asyncio.to_thread(worker.communicate)


async def test_a_killed_writer_leaves_the_store_whole(
    cluster: SqliteCluster, tmp_path: Path
) -> None:
    await cluster.create(COUNTER)
    for _ in range(3):
        worker = counting(tmp_path / "o.sqlite", 1_000_000)
        assert worker.stdout is not None
        await asyncio.to_thread(worker.stdout.readline)
        await asyncio.sleep(0.1)
        worker.send_signal(signal.SIGKILL)
        await asyncio.to_thread(worker.communicate)
    counter = await cluster.get("Counter", "default", "c")
    versions = 1 + counter.status["n"]  # one for the creation, one for each count
    assert int(counter.metadata.resource_version) == versions
    check = sqlite3.connect(tmp_path / "o.sqlite")
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


async def test_opening_at_the_same_time_works(tmp_path: Path) -> None:
    def opening() -> subprocess.Popen[bytes]:
        code = "import sys; from pathlib import Path; from ebbtide.adapters.cluster_sqlite.store"
        code += " import connect; connect(Path(sys.argv[1]))"
        return subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "new" / "o.sqlite")])

    workers = [opening() for _ in range(6)]
    assert [await asyncio.to_thread(worker.wait) for worker in workers] == [0] * 6


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()) as first:
        made = await first.create(COUNTER)
    async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()) as second:
        assert await second.get("Counter", "default", "c") == made


async def test_a_bookmark_keeps_an_idle_watch_inside_history(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()) as cluster:
        await cluster.create(COUNTER)
        async with asyncio.timeout(10):
            async for change in cluster.watch(("Pod",), None, "0"):
                assert change.type == "BOOKMARK"
                assert change.resource.metadata.resource_version == "1"
                break


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "o.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Permanent, match="newer version"):
        async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()):
            pass


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "o.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(Permanent, match="cannot open"):
        async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock()):
            pass


async def test_logs_are_tailed_and_outlive_their_pod(
    cluster: SqliteCluster, tmp_path: Path
) -> None:
    path = log_file(tmp_path / "logs", "default", "a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\ntwo\nthree\n")
    got = [line async for line in cluster.logs("default", "a", 2, follow=False)]
    assert got == [b"two", b"three"]


async def test_a_log_is_followed_over_a_rotation_until_the_pod_ends(
    cluster: SqliteCluster, tmp_path: Path
) -> None:
    await cluster.create(Resource(api_version="v1", kind="Pod", metadata=Meta(name="a")))
    path = log_file(tmp_path / "logs", "default", "a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old\nnew\nhal")
    lines = cluster.logs("default", "a", 1, follow=True)
    seen = [await anext(lines)]
    with path.open("ab", buffering=0) as file:
        file.write(b"f\n")
        seen.append(await anext(lines))
        assert rotate(path, limit=5)
    path.write_bytes(b"last")
    await cluster.patch_status("Pod", "default", "a", {"phase": "Failed"})
    async with asyncio.timeout(10):
        seen += [line async for line in lines]
    assert seen == [b"new", b"half", b"last"]


async def test_a_conflict_does_not_end_the_store(cluster: SqliteCluster) -> None:
    await cluster.create(COUNTER)
    with pytest.raises(Conflict):
        await cluster.create(COUNTER)
    await cluster.patch_status("Counter", "default", "c", {"n": 1})
