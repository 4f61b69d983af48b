"""Sampling and scoring without a learner, then learning from what was sampled, on real services."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stack import Stack
from ebbtide import paths
from ebbtide.api import Job
from ebbtide.reports import StepReport
from ebbtide.wire import BatchManifest, PolicyIndex, decode
from tests.e2e.jobs import Material, Spec, judged, training
from tests.e2e.tiny import write_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
STEPS = 2


def small(material: Material, **changes: object) -> Spec:
    return material.spec(
        training=training(totalSteps=STEPS, promptsPerStep=4, maxResponseTokens=32),
        decode={"engine": "torch", "device": "cpu", "replicas": 1},
        learner={"ranks": 1, "device": "cpu"},
        **changes,
    )


def completed(stack: Stack, name: str, spec: Spec) -> Job:
    stack.submit(name, spec)
    ended = stack.finished(name, seconds=400)
    assert ended.state == "Complete", ended.message
    return ended


def report(stack: Stack, job: Job, step: int) -> StepReport:
    path = stack.blobs / paths.step_report(job.metadata.uid, step)
    return StepReport.model_validate_json(path.read_bytes())


def test_batches_of_a_job_without_a_learner_are_learnt_from_by_another(
    stack: Stack, material: Material, tmp_path: Path
) -> None:
    material = Material(write_model(tmp_path / "model"), material.prompts)
    source = {"type": "jsonl", "uri": str(material.prompts)}
    data = {"train": source, "eval": source, "maxPromptTokens": 32}
    judging = {"everySteps": 2, "prompts": 4}
    spec = small(material, mode="rollout-only", dataset=data, evaluation=judging)
    sampler = completed(stack, "sampler", spec)
    uid = sampler.metadata.uid
    assert judged(stack, uid).faults() == {}
    held = [path.name for path in (stack.blobs / paths.usages(uid)).glob("*.json")]
    assert held
    assert not [name for name in held if "-learner-" in name]
    reports = [report(stack, sampler, step) for step in range(STEPS + 1)]
    assert [one.kind for one in reports] == ["rollout", "rollout", "eval"]
    assert all(one.rewards for one in reports[:STEPS])
    assert all(one.evaluation for one in (reports[0], reports[STEPS]))
    assert not any(one.learner for one in reports)
    batch = decode((stack.blobs / paths.batch(uid, 1, 0)).read_bytes(), BatchManifest)
    given = (stack.blobs / paths.base(uid) / "index.msgpack").read_bytes()
    assert decode(given, PolicyIndex).policy == batch.base

    spec = small(material, recorded={"uid": uid})
    spec.pop("reward")
    learner = completed(stack, "learner", spec)
    steps = [report(stack, learner, step) for step in range(STEPS)]
    assert steps[0].policy_digest == batch.base.digest  # a learner publishes the same bits
    stats = [one.learner.stats for one in steps if one.learner]
    assert len(stats) == STEPS
    assert stats[0]["grad_norm"] > 0
    assert stats[0]["mismatch_kl"] < 1e-4
    assert steps[0].next_policy_digest != steps[0].policy_digest
