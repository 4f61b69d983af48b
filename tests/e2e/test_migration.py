"""Samples that move while they run keep their bits, with their KV and without (protocol.md 6, 10)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.progress import step_reports
from benchmarks.stack import Stack
from ebbtide.reports import MigrationReport
from services.planner.core.steering import straight_profile
from tests.e2e.jobs import Material, Spec, judged, training
from tests.e2e.test_reference import Bits, bits
from tests.e2e.tiny import write_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ACTORS, LONGEST = 3, 160
LAYERS = 40
"""So many that an answer takes seconds on any machine: who moves is asked once a second."""


@pytest.fixture(scope="module")
def long_answers(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Material:
    """A model whose answers take seconds."""
    folder = tmp_path_factory.mktemp("long") / "model"
    return Material(write_model(folder, more=110, layers=LAYERS), material.prompts)


def moving(material: Material, rule: str, **decode: object) -> Spec:
    sizes = training(totalSteps=2, promptsPerStep=6, maxResponseTokens=LONGEST)
    decoding = {"engine": "torch", "replicas": ACTORS, "referenceMode": True, "device": "cpu"}
    planner = {"migration": rule, "tau": 0.3}
    return material.spec(
        training=sizes,
        decode=decoding | decode,
        planner=planner,
        learner={"ranks": 1, "device": "cpu"},
    )


def run(stack: Stack, spec: Spec, name: str) -> tuple[Bits, list[MigrationReport]]:
    job = stack.submit(name, spec)
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
    reports = step_reports(stack.blobs, job.metadata.uid)
    return bits(stack, job.metadata.uid), [r.migration for r in reports if r.migration]


@pytest.fixture(scope="module")
def unmoved(stack: Stack, long_answers: Material) -> Bits:
    found, moved = run(stack, moving(long_answers, "none"), "unmoved")
    assert moved == []
    return found


def test_samples_that_move_with_their_kv_keep_their_bits(
    stack: Stack, long_answers: Material, unmoved: Bits
) -> None:
    found, moved = run(stack, moving(long_answers, "tau"), "moved-with-kv")
    assert sum(report.with_kv for report in moved) > 0
    assert found == unmoved
    logs = (stack.state / "logs").rglob("*decode*")
    computed = [log for log in logs if log.is_file() and "KV not pulled" in log.read_text()]
    assert computed == [], "a target computed what it had a ticket for"


def test_samples_that_move_without_kv_keep_their_bits(
    stack: Stack, long_answers: Material, unmoved: Bits, tmp_path: Path
) -> None:
    no_path = tmp_path / "profile.json"
    no_path.write_bytes(msgspec.json.encode(straight_profile("torch", first=0.01, more=0.0001)))
    spec = moving(long_answers, "tau", profile=str(no_path))
    found, moved = run(stack, spec, "moved-and-computed")
    assert sum(report.recomputed for report in moved) > 0
    assert sum(report.with_kv for report in moved) == 0
    assert found == unmoved
