"""Samples per second of the whole loop, against TRL's GRPOTrainer side by side.

Both sides get the same model, prompts, group size, length limit, optimiser and cores, and score
with the same exact match; they run in turns on the same machine. Start-up is not counted on
either side: the first steps are left out. TRL runs in the way that suits this machine best: each
way is tried first, over a few steps.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import trl, workload
from benchmarks.harness import Measured
from benchmarks.progress import load_json, step_reports
from benchmarks.stack import running

ROUNDS = 2
STEPS, WARMUP = 14, 4
PROMPTS, GROUP, LIMIT = 32, 8, 128
CORES = 2
RATE = 2e-4


@dataclass(frozen=True)
class Way:
    """How TRL may use the cores: data-parallel processes, micro-batches of each one's share."""

    processes: int
    micro_batches: int

    def __str__(self) -> str:
        return f"trl 1.16, {self.processes} proc x {self.micro_batches} micro"


WAYS = tuple(Way(processes, micro) for processes in (1, CORES) for micro in (1, 4))
TRIAL_STEPS, TRIAL_WARMUP = 5, 2


@dataclass(frozen=True)
class Side:
    """What one side did in its measured steps. Lengths in tokens, over all its steps."""

    samples: int
    seconds: float
    lengths: Sequence[int]
    reward: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds


def measure() -> Measured:
    """Run both sides in turns; the figure is the ratio of their rates over all rounds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, prompts = workload.reversal(folder)
        trials = {way: run_trl(model, prompts, way, TRIAL_STEPS, TRIAL_WARMUP) for way in WAYS}
        best = max(trials, key=lambda way: trials[way].rate)
        theirs, ours = [], []
        for turn in range(ROUNDS):
            theirs.append(run_trl(model, prompts, best))
            ours.append(run_ebbtide(folder / f"state-{turn}", model, prompts))
    rates = [sum(s.samples for s in side) / sum(s.seconds for s in side) for side in (ours, theirs)]
    rows = [_row(f"{way}, trial", side) for way, side in trials.items()]
    rows += [_row("ebbtide", side) for side in ours] + [_row(str(best), side) for side in theirs]
    columns = ["who", "samples/s", "s/step", "len p50", "len p90", "len max", "reward"]
    return Measured(value=rates[0] / rates[1], columns=columns, rows=rows)


def _row(name: str, side: Side) -> list[object]:
    p50, p90 = np.percentile(side.lengths, [50, 90])
    step = side.seconds * PROMPTS * GROUP / side.samples
    return [name, side.rate, step, p50, p90, max(side.lengths), side.reward]


def run_trl(model: Path, prompts: Path, way: Way, steps: int = STEPS, warmup: int = WARMUP) -> Side:
    """TRL in an environment of its own, all cores between its processes."""
    options = {
        "model": model,
        "prompts": prompts,
        "steps": steps,
        "warmup": warmup,
        "prompts-per-step": PROMPTS,
        "group": GROUP,
        "max-tokens": LIMIT,
        "micro-batches": way.micro_batches,
        "processes": way.processes,
        "threads": CORES // way.processes,
        "learning-rate": RATE,
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={way.processes}"]
    script = Path(__file__).with_name("trl_side.py")
    done = subprocess.run(
        [trl.interpreter(), *(launcher if way.processes > 1 else ()), script, *flags],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(CORES // way.processes),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = load_json(done.stdout)
    seconds = found["seconds"]
    samples = found["samples_per_step"] * len(seconds)
    return Side(samples, sum(seconds), found["lengths"], found["reward"])


def _environment(threads: int) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return own | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}


def run_ebbtide(state: Path, model: Path, prompts: Path) -> Side:
    """The whole platform: `ebbtide up`, the job over REST, one core for each actor and rank."""
    with running(state) as stack:
        job = stack.submit("trl-loop", spec(model, prompts))
        ended = stack.finished("trl-loop", seconds=600)
        assert ended.state == "Complete", ended.message
        reports = step_reports(stack.blobs, job.metadata.uid)
        lengths = workload.lengths(stack.blobs, job.metadata.uid)
    measured = [report for report in reports if report.kind == "train"][WARMUP:]
    rewards = [report.rewards.mean for report in reports if report.rewards]
    samples = sum(report.samples.accepted for report in measured)
    seconds = sum(report.seconds for report in measured)
    return Side(samples, seconds, lengths, sum(rewards) / len(rewards))


def spec(model: Path, prompts: Path) -> Mapping[str, Any]:
    """TRL's options in ebbtide's words."""
    exact = {"type": "exact", "name": "answer", "extract": "<answer>(.*)</answer>"}
    return {
        "model": {"uri": str(model)},
        "dataset": {
            "train": {"type": "jsonl", "uri": str(prompts)},
            "shuffle": False,
            "maxPromptTokens": 128,
        },
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {
            "totalSteps": STEPS,
            "promptsPerStep": PROMPTS,
            "maxResponseTokens": LIMIT,
            "learningRate": RATE,
            "beta2": 0.99,
        },
        "reward": {"components": [exact]},
        "decode": {"replicas": CORES, "slots": PROMPTS * GROUP // CORES, "threads": 1},
        "learner": {"ranks": CORES, "threads": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1000},
    }
