"""Ends what a supervisor has left, or is about to leave: its children, servers, jobs' processes.

Nothing is ended that cannot be shown to be ours: a child names the state folder in its
environment, a server in its command line, and a pod's process has the start time that its object
tells.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ebbtide import labels
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.errors import EbbtideError, NotFound, Permanent
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Cluster
from ebbtide_operator.children import GATEWAY, OPERATOR, RUNNER
from ebbtide_operator.core.pods import PLANNER
from ebbtide_operator.podspec import PodView, view
from ebbtide_operator.processes import Started, is_alive, send, start_time

CHILD_SECONDS = 10.0
SAVE_SECONDS = 20.0
"""For planners, which save a checkpoint while actors and learners still live."""
LEAVE_SECONDS = 3.0
"""For all others, which have nothing to hand over any more."""
SHUTDOWN = "NodeShutdown"
POLL_SECONDS = 0.05
FULL_BYTES = 1 << 20
"""With less the object store cannot even be opened."""
SERVERS = ("nats-server", "valkey-server")


def store_file(state: Path) -> Path:
    """Where the objects of a state folder are."""
    return state / "cluster.sqlite"


async def end_children(state: Path, log: Log) -> None:
    """End the children of a supervisor of this folder that died without them."""
    modules = {module.encode() for module in (RUNNER, OPERATOR, GATEWAY)}
    await _end_left(
        [seen.process for seen in _of(state) if modules.intersection(seen.command)], log
    )


async def end_servers(state: Path, log: Log) -> None:
    """End broker and hot store of this folder, which keep nothing that is not on disk."""
    configs = {os.fsencode(state / "servers" / f"{name}.conf") for name in SERVERS}
    await _end_left([s.process for s in _processes() if configs.intersection(s.command)], log)


async def _end_left(running: Sequence[Started], log: Log) -> None:
    if running:
        log.warning("ending what an earlier run has left", n=len(running))
        await end(running, CHILD_SECONDS)


async def check_store(state: Path) -> None:
    """Raise Permanent, which says what to do, if the object store cannot be read."""
    async with _store(state) as cluster:
        await cluster.list("Pod")


async def end_pods(state: Path, log: Log) -> None:
    """End every pod's process, planners first, and write down when that was.

    The runner must have ended before. The operator of the next start makes new pods. Raises
    Permanent or Temporary if the object store cannot be read; what names the folder in its
    environment is ended all the same.
    """
    known = False
    try:
        if store_file(state).exists():
            await _end_known(state, log)
            known = True
    finally:
        if not known:
            await end([seen.process for seen in _of(state)], SAVE_SECONDS)


async def _end_known(state: Path, log: Log) -> None:
    async with _store(state) as cluster:
        pods = [view(pod) for pod in (await cluster.list("Pod"))[0]]
        running = [pod for pod in pods if not pod.finished and pod.status.pid]
        planners = [pod for pod in running if pod.label(labels.ROLE) == PLANNER]
        others = [pod for pod in running if pod.label(labels.ROLE) != PLANNER]
        for group, seconds in ((planners, SAVE_SECONDS), (others, LEAVE_SECONDS)):
            await end([_process(pod) for pod in group], seconds)
            for pod in group:
                await _write_down(cluster, pod, log)
    if running:
        log.info("pods ended", n=len(running))


async def end(processes: Sequence[Started], seconds: float) -> None:
    """SIGTERM, and SIGKILL for what is still there after `seconds`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            send(process, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(map(is_alive, processes)):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def _store(state: Path) -> AsyncIterator[Cluster]:
    """The object store; raises Permanent that says what to do where it cannot be used."""
    file = store_file(state)
    try:
        async with open_cluster(file, clock=SystemClock()) as cluster:
            yield cluster
    except Permanent as error:
        raise Permanent(f"{error}; {mend(state, shutil.disk_usage(state).free)}") from error


def mend(state: Path, free: int) -> str:
    """What to do where the object store cannot be used and so many bytes of its disk are free.

    A store on a full disk is whole, however SQLite puts it, and had better stay where it is.
    """
    if free < FULL_BYTES:
        return f"the disk of {state} is full: free some space there"
    file = store_file(state)
    way = f"if {file} is damaged, put back a good copy, or move it away with its -wal and -shm"
    lost = f"the list of jobs is then lost, what they wrote in {state / 'blobs'} is not"
    return f"{way}: {lost}"


async def _write_down(cluster: Cluster, pod: PodView, log: Log) -> None:
    meta = pod.resource.metadata
    status = {
        "phase": "Failed",
        "ready": False,
        "reason": SHUTDOWN,
        "message": "the platform was shut down",
        "finishedAt": rfc3339(SystemClock().wall()),
    }
    try:
        await cluster.patch_status("Pod", meta.namespace, meta.name, status)
    except NotFound:
        return
    except EbbtideError as error:  # the others must end too; the next runner finds this one gone
        log.warning("cannot write down that a pod ended", pod=meta.name, why=str(error))


def _process(pod: PodView) -> Started:
    return Started(pod.status.pid, pod.status.pid_start)


class _Seen(NamedTuple):
    """A process of this machine, with its command line and its environment."""

    process: Started
    command: Sequence[bytes]
    environ: Sequence[bytes]


def _of(state: Path) -> Iterator[_Seen]:
    """The processes that have this very state folder in their environment, and the name of a pod.

    A process that was forked shows its parent's.
    """
    mark = b"EBBTIDE_CLUSTER=" + os.fsencode(store_file(state))
    for seen in _processes():
        named = any(entry.startswith(b"EBBTIDE_POD=") for entry in seen.environ)
        if mark in seen.environ and named and seen.process.pid != os.getpid():
            yield seen


def _processes() -> Iterator[_Seen]:
    """All that we may look into."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            environ = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if (start := start_time(int(folder.name))) is not None:
            yield _Seen(Started(int(folder.name), start), command, environ)
