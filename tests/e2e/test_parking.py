"""An actor that slept while it was not needed serves again, and its sleep is priced apart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from benchmarks.progress import step_reports
from benchmarks.stack import Stack
from ebbtide.reports import StepReport
from services.planner.core.steering import straight_profile
from tests.e2e.jobs import Material, Spec, emulation, judged, training
from tests.e2e.tiny import write_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PER_HOUR, SHARE = 3.6, 0.05


def sleepers(report: StepReport) -> set[str]:
    return {
        actor.name
        for actor in report.actors
        if any(part.cause == "parked" for part in actor.intervals)
    }


def workers(report: StepReport) -> set[str]:
    return {actor.name for actor in report.actors if actor.samples}


def parking(material: Material, folder: Path) -> Spec:
    """Each step has the same three prompts, whose answers differ by seconds from prompt to prompt.

    Time alone is weighed, and many samples at once are slow, so two actors are always wanted. The
    profile says that they wake at once.
    """
    prompts, profile = write_prompts(folder / "three.jsonl", rows=3), folder / "profile.json"
    curve = straight_profile("emulated", first=0.06, more=0.002, start=20.0, wake=0.0)
    profile.write_bytes(msgspec.json.encode(curve))
    lengths = {"meanTokens": 150.0, "sigma": 1.0, "promptShare": 1.0}
    return Material(material.model, prompts).spec(
        training=training(totalSteps=4, promptsPerStep=3, maxResponseTokens=400),
        decode={
            "engine": "emulated",
            "replicas": 2,
            "maxReplicas": 2,
            "pool": "gpus",
            "profile": str(profile),
            "emulation": emulation(**lengths, tpotMs=60.0, tpotPerRowMs=2.0),
        },
        planner={
            "scaling": "elastic",
            "parked": 2,
            "migration": "none",
            "objective": {"type": "lambda", "weight": 1.0},
        },
        learner={"ranks": 1, "device": "cpu"},
        prices=[
            {"pool": "gpus", "perHour": PER_HOUR, "parkedShare": SHARE},
            {"pool": "default", "perHour": 1.0},
        ],
    )


def test_an_actor_that_slept_serves_again_and_its_sleep_is_priced_apart(
    stack: Stack, material: Material, tmp_path: Path
) -> None:
    job = stack.submit("parks", parking(material, tmp_path))
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
    reports = step_reports(stack.blobs, job.metadata.uid)
    again = [sleepers(one) & workers(two) for one, two in pairwise(reports)]
    assert any(again), [(sleepers(report), workers(report)) for report in reports]
    parts = {p.cause: p for p in stack.client.cost(job.name).parts if p.role == "decode"}
    assert parts["parked"].cost == pytest.approx(parts["parked"].seconds * PER_HOUR / 3600 * SHARE)
