"""Ends what a supervisor has left, or is about to leave: its children, and the jobs' processes.

Nothing is ended that cannot be shown to be ours: a child names the state folder in its
environment, a pod's process has the start time that its object tells.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ebbtide import labels
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.endpoint import read_up
from ebbtide.errors import NotFound
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Cluster
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


async def end_children(state: Path, log: Log) -> None:
    """End the children of a supervisor of this folder that died without them."""
    up = read_up(state)
    known = {name: pid for name, pid in up.pids.items() if name != "up"} if up else {}
    ours = [pid for pid in known.values() if _is_ours(pid, state)]
    running = [Started(pid, start) for pid in ours if (start := start_time(pid)) is not None]
    if running:
        log.warning("ending what an earlier run has left", n=len(running))
        await end(running, CHILD_SECONDS)


async def end_pods(state: Path, log: Log) -> None:
    """End every pod's process, planners first, and write down when that was.

    The runner must have ended before. The operator of the next start makes new pods.
    """
    clock = SystemClock()
    async with open_cluster(state / "cluster.sqlite", clock=clock) as cluster:
        pods = [view(pod) for pod in (await cluster.list("Pod"))[0]]
        running = [pod for pod in pods if not pod.finished and pod.status.pid]
        planners = [pod for pod in running if pod.label(labels.ROLE) == PLANNER]
        others = [pod for pod in running if pod.label(labels.ROLE) != PLANNER]
        for group, seconds in ((planners, SAVE_SECONDS), (others, LEAVE_SECONDS)):
            await end([_process(pod) for pod in group], seconds)
            for pod in group:
                await _write_down(cluster, pod, clock.wall())
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


async def _write_down(cluster: Cluster, pod: PodView, now: float) -> None:
    meta = pod.resource.metadata
    status = {
        "phase": "Failed",
        "ready": False,
        "reason": SHUTDOWN,
        "message": "the platform was shut down",
        "finishedAt": rfc3339(now),
    }
    with suppress(NotFound):
        await cluster.patch_status("Pod", meta.namespace, meta.name, status)


def _process(pod: PodView) -> Started:
    return Started(pod.status.pid, pod.status.pid_start)


def _is_ours(pid: int, state: Path) -> bool:
    """Whether the process has this very state folder in its environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"EBBTIDE_CLUSTER={state / 'cluster.sqlite'}".encode() in environment
