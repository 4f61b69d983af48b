"""Suspend, resume, cancel and delete: what they free, what they keep, what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.progress import Progress
from benchmarks.stack import Pod, Stack, until
from ebbtide import paths
from ebbtide.api import Job
from ebbtide.client import ApiError
from ebbtide.wire import Committed, Epoch, Record
from tests.checker.reader import chain
from tests.e2e.gates import Gate
from tests.e2e.jobs import Material, emulation, judged, training
from tests.e2e.processes import alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
STEPS, PROMPTS = 4, 2


def begun(stack: Stack, material: Material, name: str, gate: Gate) -> tuple[Job, list[Pod]]:
    """A job of short steps with the first one committed, and its pods. The next waits for `gate`."""
    source = {"type": "jsonl", "uri": str(gate.before(material, free=PROMPTS).prompts)}
    spec = material.spec(
        dataset={"train": source, "maxPromptTokens": 32, "shuffle": False},
        training=training(totalSteps=STEPS, promptsPerStep=PROMPTS, maxResponseTokens=32),
        reward=gate.reward(),
        decode={"engine": "emulated", "replicas": 1, "emulation": emulation(meanTokens=16.0)},
        learner={"ranks": 1, "device": "cpu"},
        checkpoint={"everySteps": 100},  # only a suspension saves
    )
    job = stack.submit(name, spec)
    progress = Progress(stack.blobs, job.metadata.uid)
    until(
        lambda: progress.committed,
        seconds=240,
        what=lambda: f"the first step of {name}: {stack.client.get(name).status}",
    )
    return job, stack.pods(name)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """No job is over before a test has done to it what it will, however fast the machine."""
    return Gate(tmp_path / "gate")


def names(stack: Stack) -> list[str]:
    return [job.name for job in stack.client.page().items]


def freed(stack: Stack, name: str, pods: list[Pod]) -> None:
    """Wait until no object and no process of the job is left."""
    assert pods
    until(
        lambda: not stack.pods(name) and not any(alive(pod.pid) for pod in pods),
        seconds=120,
        what=lambda: f"no pods: {stack.pods(name)}",
    )


def attempts(stack: Stack, job_uid: str) -> list[tuple[int, list[int]]]:
    """Each attempt with the steps that it committed, in the ledger's order."""
    found: list[tuple[int, list[int]]] = []
    for record in records(stack, job_uid):
        match record:
            case Epoch(attempt=attempt) if not found or found[-1][0] != attempt:
                found.append((attempt, []))
            case Committed(step=step):
                found[-1][1].append(step)
    return found


def records(stack: Stack, job_uid: str) -> list[Record]:
    return [record for segment in chain(stack.blobs, job_uid) for record in segment.records]


def test_a_suspended_job_holds_no_pod_and_goes_on_from_its_last_step(
    stack: Stack, material: Material, gate: Gate
) -> None:
    job, pods = begun(stack, material, "rested", gate)
    stack.client.suspend(job.name)
    until(lambda: stack.client.get(job.name).state == "Suspended", seconds=120, what="suspension")
    assert stack.pods(job.name) == []
    assert not [pod for pod in pods if alive(pod.pid)]
    gate.open()
    stack.client.resume(job.name)
    ended = stack.finished(job.name, seconds=240)
    assert ended.state == "Complete", ended.message
    (one, before), (two, after) = attempts(stack, job.metadata.uid)
    assert (one, two) == (1, 2)
    assert before
    assert after
    assert before + after == list(range(STEPS))
    assert judged(stack, job.metadata.uid).faults() == {}


def test_a_cancelled_job_frees_its_pods_and_stays_cancelled(
    stack: Stack, material: Material, gate: Gate
) -> None:
    job, pods = begun(stack, material, "unwanted", gate)
    stack.client.cancel(job.name)
    assert stack.finished(job.name, seconds=120).state == "Cancelled"
    freed(stack, job.name, pods)
    for ask in (stack.client.resume, stack.client.suspend):
        with pytest.raises(ApiError) as refused:
            ask(job.name)
        assert refused.value.status == 409
    stack.client.cancel(job.name)  # asking again changes nothing
    assert stack.client.get(job.name).state == "Cancelled"
    assert stack.pods(job.name) == []


def test_a_deleted_job_is_gone_with_its_pods_and_leaves_its_blobs(
    stack: Stack, material: Material, gate: Gate
) -> None:
    job, pods = begun(stack, material, "forgotten", gate)
    with pytest.raises(ApiError) as refused:
        stack.client.delete(job.name)
    assert refused.value.status == 409
    ledger = records(stack, job.metadata.uid)
    stack.client.delete(job.name, force=True)
    freed(stack, job.name, pods)
    until(lambda: job.name not in names(stack), seconds=120, what="the end of the job object")
    assert records(stack, job.metadata.uid)[: len(ledger)] == ledger
    assert list((stack.blobs / paths.policy(job.metadata.uid, 1, 1)).iterdir())
