"""With `prefill.mode: auto` the planner starts a prefill service once it pays, and actors use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.progress import step_reports
from benchmarks.stack import Stack, until
from tests.e2e.gates import Gate
from tests.e2e.jobs import Material, Spec, judged, training
from tests.e2e.tiny import write_model, write_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ACTORS, MEASURED = 3, 2
"""`MEASURED` steps tell what the actors' prompts cost; the others wait for the service."""


def dear_actors(material: Material, gate: Gate) -> Spec:
    """An actor has one slot and time alone counts, so a group is split over all actors.

    Each computes its long prompt, at a hundred thousand times the service's price.
    """
    prompts = gate.before(material, free=MEASURED).prompts
    source = {"type": "jsonl", "uri": str(prompts)}
    return material.spec(
        dataset={"train": source, "maxPromptTokens": 300, "shuffle": False},
        algorithm={"type": "grpo", "groupSize": 2 * ACTORS},
        training=training(totalSteps=MEASURED + 3, promptsPerStep=1, maxResponseTokens=200),
        decode={
            "engine": "torch",
            "device": "cpu",
            "replicas": ACTORS,
            "slots": 1,
            "pool": "gpus",
        },
        prefill={"mode": "auto", "device": "cpu", "pool": "spare"},
        planner={"migration": "none", "objective": {"type": "lambda", "weight": 1.0}},
        learner={"ranks": 1, "device": "cpu"},
        reward=gate.reward(),
        prices=[
            {"pool": "gpus", "perHour": 100.0},
            {"pool": "spare", "perHour": 0.001},
            {"pool": "default", "perHour": 1.0},
        ],
    )


def test_a_service_that_pays_is_started_and_serves(stack: Stack, tmp_path: Path) -> None:
    material = Material(
        write_model(tmp_path / "model", more=110),
        write_prompts(tmp_path / "long.jsonl", rows=8, longest=290),
    )
    gate = Gate(tmp_path / "gate")
    job = stack.submit("auto", dear_actors(material, gate))
    until(
        lambda: any(pod.ready for pod in stack.pods(job.name, "prefill")),
        seconds=240,
        what=lambda: f"the service: {step_reports(stack.blobs, job.metadata.uid)}",
    )
    gate.open()
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
    reports = step_reports(stack.blobs, job.metadata.uid)
    told = [(r.decision and r.decision.prefill_reason, r.prefill) for r in reports]
    assert reports[0].prefill.in_service == 0, told
    assert any(report.prefill.in_service > 0 for report in reports), told
