"""The planner's prediction of a step's time against what it took, on the real stack.

Two jobs with the torch engine, on one actor and on two: a small model with random weights, so that
answers end by chance and every prompt is seen again in each epoch. Judged is the median over all
steps after the first `WARMUP` of |predicted / realised - 1|, for the whole step. The planner begins
with a built-in curve and has only what actors report.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured
from benchmarks.progress import step_reports
from benchmarks.stack import Stack, running
from ebbtide.demo import model
from ebbtide.reports import StepReport

ACTORS = (1, 2)
PROMPTS, GROUP, LIMIT = 24, 4, 256
STEPS, WARMUP = 12, 3
SECONDS = 1200.0
COLUMNS = ("actors", "step", "predicted s", "realised s", "error", "decode predicted", "decode")


def measure() -> Measured:
    """Run both jobs, one after the other."""
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        folder = Path(scratch)
        model.save(folder / "model", seed=0)
        prompts = _prompts(folder / "prompts.jsonl")
        for actors in ACTORS:
            rows += rows_of(actors, _run(stack, spec(folder / "model", prompts, actors=actors)))
    errors = [row[4] for row in rows if isinstance(row[4], float)]
    return Measured(statistics.median(errors) if errors else math.nan, COLUMNS, rows)


def spec(folder: Path, prompts: Path, *, actors: int) -> Mapping[str, Any]:
    """A job whose every step decodes the same prompts."""
    return {
        "model": {"uri": str(folder)},
        "dataset": {"train": {"type": "jsonl", "uri": str(prompts)}, "maxPromptTokens": 64},
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {"totalSteps": STEPS, "promptsPerStep": PROMPTS, "maxResponseTokens": LIMIT},
        "reward": {"components": [{"type": "exact", "name": "never"}]},
        "decode": {"engine": "torch", "device": "cpu", "replicas": actors},
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1000},
    }


def rows_of(actors: int, reports: Sequence[StepReport]) -> list[Sequence[object]]:
    """One row for each step whose time was predicted, the first ones left out."""
    rows: list[Sequence[object]] = []
    for report in reports[WARMUP:]:
        found = report.decision
        if found is None or found.predicted_step_seconds is None:
            continue
        said, came = found.predicted_step_seconds, found.realised_step_seconds
        decode = (found.predicted_decode_seconds, found.realised_decode_seconds)
        rows.append((actors, report.step, said, came, abs(said / came - 1), *decode))
    return rows


def _run(stack: Stack, wanted: Mapping[str, Any]) -> list[StepReport]:
    name = f"prediction-{wanted['decode']['replicas']}"
    job = stack.submit(name, wanted)
    ended = stack.finished(name, seconds=SECONDS)
    assert ended.state == "Complete", ended.message
    return step_reports(stack.blobs, job.metadata.uid)


def _prompts(path: Path) -> Path:
    rows = [{"prompt": f"count to {n}", "answer": "no such answer"} for n in range(PROMPTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
