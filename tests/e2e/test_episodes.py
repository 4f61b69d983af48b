"""Episodes on the real services: the policy and an environment take turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.stack import Stack
from ebbtide import ledger, paths
from ebbtide.wire import Accepted
from tests.e2e.jobs import Material, Spec, judged, training
from tests.e2e.tiny import write_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def guessing(material: Material) -> Spec:
    """Three steps of short episodes; the model knows no number, so it is asked for one again."""
    return material.spec(
        training=training(totalSteps=3, promptsPerStep=4, maxResponseTokens=160),
        environment={"entryPoint": "ebbtide.testing.environments:guess", "maxTurns": 3},
        decode={"engine": "torch", "device": "cpu", "replicas": 2},
        learner={"ranks": 1, "device": "cpu"},
    )


def test_an_environment_answers_and_no_turn_is_lost(stack: Stack, tmp_path: Path) -> None:
    rows = [{"prompt": f"guess {n}", "answer": str(n)} for n in range(8)]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = stack.submit("turns", guessing(Material(write_model(tmp_path / "model"), prompts)))
    ended = stack.finished(job.name, seconds=300)
    assert ended.state == "Complete", ended.message
    assert judged(stack, job.metadata.uid).faults() == {}
    files = (stack.blobs / paths.segments(job.metadata.uid)).glob("*.seg")
    records = [r for file in files for r in ledger.decode_segment(file.read_bytes()).records]
    turns = [r for r in records if isinstance(r, Accepted)]
    assert {turn.key.turn for turn in turns} == {0, 1, 2}
    assert all((turn.n_given > 0) == (turn.key.turn > 0) for turn in turns)
