"""Wall time of a platform run against a bare loop that replays the same work.

The bare side gets the same cores in the way that suits it better: one thread or one per core.
The target is stated for steps of three seconds: on a machine that does the first size sooner, the
comparison is made again with so many more prompts a step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import trl_loop, workload
from benchmarks.harness import Measured
from benchmarks.progress import CpuMeter, Progress, load_json, step_reports
from benchmarks.stack import ROOT, Stack, running, until

STEPS, WARMUP = 7, 2
PROMPTS = 96
"""A step, at first,"""
SECONDS, TOLERANCE = 3.0, 0.85
"""and how long it must take at least, as a share of what the target is stated for."""
CORES = 2


@dataclass(frozen=True)
class Side:
    """Totals of the measured steps."""

    steps: int
    seconds: float
    cpu_seconds: float
    samples: int


def measure() -> Measured:
    """One platform run, then its replay with one thread and with one per core."""
    platform, bare = _compared(PROMPTS)
    taken = platform.seconds / platform.steps
    if taken < TOLERANCE * SECONDS:
        platform, bare = _compared(round(PROMPTS * SECONDS / taken))
    fastest = min(side.seconds for side in bare.values())
    rows = [_row("platform", platform)]
    rows += [_row(f"bare, {threads} threads", side) for threads, side in bare.items()]
    columns = ["who", "s/step", "CPU s/1k samples", "samples/s"]
    return Measured(value=platform.seconds / fastest, columns=columns, rows=rows)


def _compared(prompts: int) -> tuple[Side, dict[int, Side]]:
    """The platform's side and the bare loop's by its threads, with `prompts` a step."""
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        spec = _spec(*workload.reversal(Path(scratch)), prompts)
        platform, uid = run_platform(stack, spec)
        (Path(scratch) / "spec.json").write_text(json.dumps(spec))
        bare = {n: run_bare(stack, uid, Path(scratch) / "spec.json", n) for n in (1, CORES)}
    return platform, bare


def _row(name: str, side: Side) -> list[object]:
    cpu = 1000 * side.cpu_seconds / side.samples
    return [name, side.seconds / side.steps, cpu, side.samples / side.seconds]


def _spec(model: Path, rows: Path, prompts: int) -> Mapping[str, Any]:
    base = trl_loop.spec(model, rows)
    sizes = {"totalSteps": STEPS, "promptsPerStep": prompts}
    return {**base, "training": {**base["training"], **sizes}}


def run_platform(stack: Stack, spec: Mapping[str, Any]) -> tuple[Side, str]:
    """Run the job; CPU time is of every process of the stack, from the first measured step on."""
    job = stack.submit("control-plane", spec)
    progress, meter = Progress(stack.blobs, job.metadata.uid), CpuMeter(stack.up.pids["up"])
    seconds = 900.0
    until(lambda: progress.committed >= WARMUP, seconds=seconds, what="the warm-up steps")
    began = meter.read()

    def over() -> bool:
        meter.read()
        return progress.committed >= STEPS

    until(over, seconds=seconds, what="the last step")
    cpu = meter.read() - began
    ended = stack.finished("control-plane", seconds=60)
    assert ended.state == "Complete", ended.message
    reports = step_reports(stack.blobs, job.metadata.uid)
    measured = [report for report in reports if report.kind == "train"][WARMUP:]
    samples = sum(report.samples.accepted for report in measured)
    wall = sum(report.seconds for report in measured)
    return Side(len(measured), wall, cpu, samples), job.metadata.uid


def run_bare(stack: Stack, job_uid: str, spec: Path, threads: int) -> Side:
    """Replay the finished job in one process."""
    options = {"blobs": stack.blobs, "job-uid": job_uid, "spec": spec, "warmup": WARMUP}
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bare_loop", *flags, "--threads", str(threads)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = load_json(done.stdout)
    seconds = found["seconds"]
    return Side(len(seconds), sum(seconds), found["cpu_seconds"], found["samples"])
