"""A process that was paused, replaced and resumed changes nothing (protocol.md 2, 9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.progress import Progress
from benchmarks.stack import Pod, Stack, until
from tests.e2e.jobs import Material, judged
from tests.e2e.processes import alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def freeze_and_replace(stack: Stack, job: str, role: str) -> list[Pod]:
    """Stop the role's processes and report their pods as failed, as a lost node would be."""
    pods = stack.pods(job, role)
    for pod in pods:
        os.kill(pod.pid, signal.SIGSTOP)
        stack.report(pod, phase="Failed", ready=False, reason="NodeLost")
    olds = {pod.pid for pod in pods}

    def replaced() -> bool:
        new = [p for p in stack.pods(job, role) if p.pid not in olds and p.ready]
        return len(new) == len(pods)

    until(replaced, seconds=240, what=f"another {role}")
    return pods


@pytest.fixture
def ghosts() -> Iterator[list[Pod]]:
    """Pods whose processes must not outlive the test, whatever becomes of it."""
    found: list[Pod] = []
    yield found
    for pod in found:
        with suppress(ProcessLookupError):
            os.kill(pod.pid, signal.SIGKILL)


@pytest.mark.parametrize("role", ["planner", "learner"])
def test_a_zombie_changes_nothing_and_ends_by_itself(
    stack: Stack, material: Material, ghosts: list[Pod], role: str
) -> None:
    """A planner's next write meets a slot that is taken; a learner hears its successor's planner."""
    job = stack.submit(f"zombie-{role}", material.spec())
    progress = Progress(stack.blobs, job.metadata.uid)
    until(lambda: progress.committed and progress.pending, seconds=240, what="work")
    ghosts += freeze_and_replace(stack, job.name, role)
    before = progress.committed
    until(
        lambda: progress.committed > before or stack.ended(job.name),
        seconds=240,
        what="a step without the zombie",
    )
    for zombie in ghosts:
        os.kill(zombie.pid, signal.SIGCONT)
    until(lambda: not any(alive(z.pid) for z in ghosts), seconds=240, what="the zombies' end")
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
