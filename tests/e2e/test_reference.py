"""Reference mode: the same bits for any number of actors, and with kills (protocol.md 10)."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.progress import Progress, step_reports
from benchmarks.stack import Stack, until
from ebbtide.wire import SampleKey
from tests.checker.lineage import replay
from tests.checker.reader import read
from tests.e2e.gates import Gate
from tests.e2e.jobs import Material, Spec, judged, training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
STEPS = 3

Place = tuple[int, int, int]


@dataclass(frozen=True)
class Bits:
    """What must be identical: tokens and log-probabilities by sample, losses and policies."""

    samples: dict[Place, tuple[bytes, bytes]]
    losses: list[float]
    policies: list[str]


def reference(material: Material, actors: int, **changes: Spec) -> Spec:
    sizes = training(totalSteps=STEPS, promptsPerStep=4, maxResponseTokens=24)
    decoding = {"engine": "torch", "replicas": actors, "referenceMode": True, "device": "cpu"}
    base: Spec = {"training": sizes, "decode": decoding, "checkpoint": {"everySteps": 1}}
    return material.spec(**base | changes)


def place(key: SampleKey) -> Place:
    return key.step_issued, key.group, key.index


def bits(stack: Stack, job_uid: str) -> Bits:
    evidence = read(stack.blobs, job_uid, [])
    lineage = replay(evidence.records, evidence.manifest)
    found = [evidence.rollout(each[-1].ref) for each in lineage.accepted.values()]
    rollouts = [rollout for rollout in found if rollout is not None]
    assert len(rollouts) == len(found)
    reports = step_reports(stack.blobs, job_uid)
    return Bits(
        samples={place(r.key): (r.tokens, r.logprobs) for r in rollouts},
        losses=[report.learner.stats["loss"] for report in reports if report.learner],
        policies=[lineage.committed[step].policy.digest for step in sorted(lineage.committed)],
    )


def undisturbed(stack: Stack, material: Material, actors: int) -> Bits:
    return undertaken(stack, f"reference-{actors}", reference(material, actors))


def undertaken(stack: Stack, name: str, spec: Spec) -> Bits:
    return completed(stack, stack.submit(name, spec).name)


def completed(stack: Stack, name: str) -> Bits:
    ended = stack.finished(name, seconds=300)
    assert ended.state == "Complete", ended.message
    uid = stack.client.get(name).metadata.uid
    assert judged(stack, uid).faults() == {}
    return bits(stack, uid)


@pytest.fixture(scope="module")
def alone(stack: Stack, material: Material) -> Bits:
    """What one actor does; every other run must do the same."""
    found = undisturbed(stack, material, 1)
    assert len(found.samples) == STEPS * 16
    assert len(found.losses) == len(found.policies) == STEPS
    return found


@pytest.mark.parametrize("actors", [2, 4])
def test_more_actors_give_the_same_bits(
    stack: Stack, material: Material, alone: Bits, actors: int
) -> None:
    assert undisturbed(stack, material, actors) == alone


@pytest.mark.parametrize("assignment", ["round-robin", "lpt", "equal-count"])
def test_any_assignment_gives_the_same_bits(
    stack: Stack, material: Material, alone: Bits, assignment: str
) -> None:
    spec = reference(material, 3, planner={"assignment": assignment})
    assert undertaken(stack, f"reference-{assignment}", spec) == alone


def test_prompts_computed_by_the_service_give_the_same_bits(
    stack: Stack, material: Material, alone: Bits, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    service = {"mode": "service", "device": "cpu"}
    spec = reference(gate.before(material), 2, prefill=service, reward=gate.reward())
    job = stack.submit("reference-service", spec)
    until(partial(_serves, stack, job.name), seconds=120, what="the service")
    gate.open()
    assert completed(stack, job.name) == alone
    reports = step_reports(stack.blobs, job.metadata.uid)
    assert sum(report.prefill.in_service for report in reports) > 0


def _serves(stack: Stack, job: str) -> bool:
    return any(pod.ready for pod in stack.pods(job, "prefill"))


def test_a_pool_that_grows_and_shrinks_gives_the_same_bits(
    stack: Stack, material: Material, alone: Bits
) -> None:
    spec = reference(material, 1, planner={"scaling": "elastic"})
    assert undertaken(stack, "reference-elastic", spec) == alone


def _at_work(progress: Progress, step: int) -> bool:
    return progress.committed >= step and progress.pending > 0


def test_kills_at_every_step_give_the_same_bits(
    stack: Stack, material: Material, alone: Bits
) -> None:
    job = stack.submit("reference-killed", reference(material, 2))
    progress = Progress(stack.blobs, job.metadata.uid)
    roles = ["decode", "planner", "learner"]
    random.Random(3).shuffle(roles)  # noqa: S311 - a test must repeat
    for step, role in enumerate(roles):
        until(
            partial(_at_work, progress, step),
            seconds=240,
            what=f"step {step}",
        )
        victim = next(pod for pod in stack.pods(job.name, role) if pod.pid)
        os.kill(victim.pid, signal.SIGKILL)
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
    assert bits(stack, job.metadata.uid) == alone
