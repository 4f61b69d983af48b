"""The planner's CPU with 64 emulated actors and 4,096 samples a step.

Everything is real but the model: broker, hot store, ledger, 64 actor processes, scorer, learner.
No answer is right, so no group has variance and the learner has nothing to compute: the step is
decoding and the planner's own work, which is the same as ever.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Measured
from benchmarks.progress import CpuMeter, Progress, step_reports
from benchmarks.stack import Stack, running, until
from ebbtide.demo import model

ACTORS, PROMPTS, GROUP = 64, 512, 8
STEPS, WARMUP = 3, 1
LIMIT = 2048
MEAN_TOKENS, TPOT_MS = 400.0, 20.0
SECONDS = 1200.0
"""For any one wait: 64 processes start slowly on two cores."""
JOB = "emulated"


def measure() -> Measured:
    """Run the job; the figure is the planner's CPU seconds per second of its measured steps."""
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        folder = Path(scratch)
        model.save(folder / "model", seed=0)
        return _run(stack, spec(folder / "model", _prompts(folder / "prompts.jsonl")))


def spec(folder: Path, prompts: Path) -> Mapping[str, Any]:
    """Answers of 400 tokens in the mean, log-normal, at about 23 ms a token."""
    emulation = {"meanTokens": MEAN_TOKENS, "tpotMs": TPOT_MS}
    return {
        "model": {"uri": str(folder)},
        "dataset": {"train": {"type": "jsonl", "uri": str(prompts)}, "maxPromptTokens": 64},
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {"totalSteps": STEPS, "promptsPerStep": PROMPTS, "maxResponseTokens": LIMIT},
        "reward": {"components": [{"type": "exact", "name": "never"}]},
        "decode": {"engine": "emulated", "replicas": ACTORS, "emulation": emulation},
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1000},
    }


def _prompts(path: Path) -> Path:
    rows = [{"prompt": f"count to {n}", "answer": "no such answer"} for n in range(4 * PROMPTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _run(stack: Stack, wanted: Mapping[str, Any]) -> Measured:
    job = stack.submit(JOB, wanted)
    progress, whole = Progress(stack.blobs, job.metadata.uid), CpuMeter(stack.up.pids["up"])
    until(lambda: progress.committed >= WARMUP, seconds=SECONDS, what="the warm-up step")
    planner = psutil.Process(stack.pods(JOB, "planner")[0].pid)
    began = (_cpu(planner), whole.read())
    last = began

    def over() -> bool:
        nonlocal last
        last = (_cpu(planner), whole.read())
        return progress.committed >= STEPS

    until(over, seconds=SECONDS, what="the last step")
    ended = stack.finished(JOB, seconds=120)
    assert ended.state == "Complete", ended.message
    reports = step_reports(stack.blobs, job.metadata.uid)[WARMUP:STEPS]
    seconds = sum(report.seconds for report in reports)
    samples = sum(report.samples.accepted for report in reports)
    used = [b - a for a, b in zip(began, last, strict=True)]
    rows = [["planner", *_figures(used[0], seconds, samples)]]
    rows.append(["all processes", *_figures(used[1], seconds, samples)])
    columns = ["who", "cores", "CPU ms/sample", "s/step", "samples/step"]
    return Measured(value=used[0] / seconds, columns=columns, rows=rows)


def _figures(cpu: float, seconds: float, samples: int) -> list[object]:
    steps = STEPS - WARMUP
    return [cpu / seconds, 1000 * cpu / samples, seconds / steps, samples // steps]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
