"""What runs: small jobs on engines that were measured at other loads than theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.stack import ROOT, environment
from services.planner.core.planning.profile import Profile, read_profile

SECONDS = 900.0
STEPS, WARMUP = 6, 2
GROUP, WIDTH = 4, 64
BATCHES = (1, 4, 16, 32)
"""Measured; the jobs' batches lie between, and fall to 1 within each step."""


class Job(NamedTuple):
    """`mean`: tokens of an answer (of the emulated engine; the torch one's end by chance)."""

    engine: str
    actors: int
    prompts: int
    limit: int
    mean: float = 0.0
    slots: int = 32

    @property
    def name(self) -> str:
        """Of the job."""
        return f"fidelity-{self.engine}-{self.actors}-{self.limit}"


JOBS: Mapping[str, tuple[Job, ...]] = {
    "torch": (Job("torch", 1, 10, 320), Job("torch", 2, 18, 256)),
    "emulated": (Job("emulated", 3, 20, 512, 150.0), Job("emulated", 5, 24, 640, 230.0)),
}


def spec(job: Job, folder: Path) -> Mapping[str, Any]:
    """A job whose every step decodes the same prompts; `folder` holds the model."""
    emulation = {"meanTokens": job.mean or 100.0, "sigma": 0.5, "tpotMs": 12, "tpotPerRowMs": 0.3}
    return {
        "model": {"uri": str(folder / "model")},
        "dataset": {
            "train": {"type": "jsonl", "uri": str(_prompts(folder, job.prompts))},
            "maxPromptTokens": WIDTH,
        },
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {
            "totalSteps": STEPS,
            "promptsPerStep": job.prompts,
            "maxResponseTokens": job.limit,
        },
        "reward": {"components": [{"type": "exact", "name": "never"}]},
        "decode": {
            "engine": job.engine,
            "device": "cpu",
            "replicas": job.actors,
            "slots": job.slots,
            **({"emulation": emulation} if job.engine == "emulated" else {}),
        },
        "planner": {"scaling": "static", "migration": "none"},
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1000},
    }


def measured(engine: str, folder: Path) -> Profile:
    """What `ebbtide profile` finds of this engine, with the first job's limit."""
    document, out = folder / f"{engine}.yaml", folder / f"{engine}.json"
    wanted = {
        "apiVersion": "rlhf.ebbtide.dev/v1alpha1",
        "kind": "RLHFJob",
        "metadata": {"name": engine},
        "spec": spec(JOBS[engine][0], folder),
    }
    document.write_text(yaml.safe_dump(wanted))
    chosen = [word for batch in BATCHES for word in ("--batch", str(batch))]
    done = subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", "profile", str(document), "--out", str(out), *chosen],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, f"ebbtide profile: {done.stdout}{done.stderr}"
    return read_profile(out.read_bytes())


def _prompts(folder: Path, count: int) -> Path:
    path = folder / f"prompts-{count}.jsonl"
    rows = [{"prompt": f"count to {n}", "answer": "no such answer"} for n in range(count)]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path
