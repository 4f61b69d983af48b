"""The process runner's chores: what is in their way costs no pod its runner."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

from ebbtide import logs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite.pod_logs import older_file
from ebbtide.errors import Temporary
from ebbtide.testing.cluster import FakeCluster
from ebbtide_operator.keeper import Host, Places
from ebbtide_operator.local import LifeSign, Runner


async def goes_on(chore: Coroutine[Any, Any, None]) -> bool:
    """Whether the chore is still at it after a while."""
    task = asyncio.ensure_future(chore)
    done, _ = await asyncio.wait({task}, timeout=0.2)
    task.cancel()
    await asyncio.wait({task})
    return not done


def a_host(folder: Path, said: io.StringIO, cluster: Any = None) -> Host:
    absent = cast("Any", None)
    return Host(
        cluster=cluster,
        clock=SystemClock(),
        log=logs.setup("info", stream=said),
        cold=absent,
        nursery=absent,
        http=absent,
        places=Places(logs=folder, secrets=folder, folder=folder),
    )


class Mute(FakeCluster):
    """An object store that does not answer."""

    async def list(self, *_: Any, **__: Any) -> Any:
        raise Temporary("database or disk is full", delay=0.01)


async def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    said = io.StringIO()
    host = a_host(tmp_path, said, Mute())
    assert await goes_on(Runner(host=host, log_bytes=10, log_days=0.0).watch())
    assert "pods are not heard of" in said.getvalue()


async def test_a_log_that_cannot_be_rotated_is_told_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "default" / "pod.log"
    path.parent.mkdir()
    path.write_bytes(b"line\n" * 100)
    older_file(path).mkdir()  # as little to be written to as on a full disk
    said = io.StringIO()
    host = a_host(tmp_path, said)
    assert await goes_on(Runner(host=host, log_bytes=10, log_days=0.0).rotate_logs())
    assert "log not rotated yet" in said.getvalue()


async def test_a_sign_of_life_that_cannot_be_given_ends_nothing(tmp_path: Path) -> None:
    assert await goes_on(LifeSign(tmp_path / "gone" / "runner.alive").keep())
