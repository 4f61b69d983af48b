"""Held-out reward over the steps of each algorithm, on the demonstration's task, three seeds each.

All runs begin with the demonstration's warm-started model and differ in `algorithm` and `seed`
alone; two mini-batches a step, so that ratios leave 1 and clips act. The figure is the smallest
gain of held-out reward of all runs. Each run's curve is kept under runs/learning-curves and not
done again; docs/learning-curves.md and its picture are written from what is there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import Measured
from benchmarks.learning_curves.page import Curve, write
from benchmarks.progress import step_reports
from benchmarks.stack import ROOT, Stack, running
from ebbtide.cli import files
from ebbtide.demo.material import Material, obtain

SEEDS = (0, 1, 2)
STEPS, PROMPTS, HELD_OUT = 16, 32, 256
RESULTS = ROOT / "runs" / "learning-curves"
GROUP = {"groupSize": 8}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": {"type": "grpo", "advantageScale": "group", **GROUP},
    "Dr. GRPO": {"type": "grpo", "aggregation": "dr-grpo", "advantageScale": "none", **GROUP},
    "DAPO": {"type": "dapo", **GROUP},
    "GSPO": {"type": "gspo", **GROUP},
    "CISPO": {"type": "cispo", **GROUP},
    "RLOO": {"type": "rloo", **GROUP},
    "REINFORCE++": {"type": "reinforce-plus-plus", **GROUP},
    "PPO": {"type": "ppo", "critic": {"learningRate": 1e-3}, **GROUP},
}
"""What each run's `algorithm` is; all else of it is the default."""


def measure() -> Measured:
    """Run what is missing, 24 runs of about half a minute, and write the page."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        material = warmed(stack)
        curves = [curve(stack, material, name, seed) for seed in SEEDS for name in ALGORITHMS]
    write(curves, ALGORITHMS)
    rows = [[c.algorithm, c.seed, c.first, c.last, c.gain] for c in curves]
    smallest = min(c.gain for c in curves)
    return Measured(smallest, ["algorithm", "seed", "first", "last", "gain"], sorted(rows))


def warmed(stack: Stack) -> Material:
    """The demonstration's prompts and its warm-started model, from its cache if they are there."""
    warm_start = files.read(ROOT / "deploy/examples/sft.yaml")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebbtide"
    material = obtain(cache, job=warm_start, seed=0, say=lambda _: None)
    if not material.warm:
        spec = placed(warm_start["spec"], material)
        done(stack, "warm-start", spec)
        [last, *_] = stack.client.checkpoints("warm-start").items
        material.keep_model(stack.blobs / last.policy_path)
    return material


def placed(spec: dict[str, Any], material: Material) -> dict[str, Any]:
    """The example's spec with its files named where they are."""
    for holder in (spec["model"], *spec["dataset"].values()):
        if isinstance(holder, dict):
            holder["uri"] = str(material.folder.resolve() / Path(holder["uri"]).name)
    return spec


def curve(stack: Stack, material: Material, name: str, seed: int) -> Curve:
    """The run's held-out and training rewards; kept ones are read."""
    kept = RESULTS / f"{name.replace(' ', '').lower()}-{seed}.json"
    if kept.exists():
        return msgspec.json.decode(kept.read_bytes(), type=Curve)
    job = f"curve-{list(ALGORITHMS).index(name)}-{seed}"
    uid = done(stack, job, spec_of(material, ALGORITHMS[name], seed))
    reports = step_reports(stack.blobs, uid)
    found = Curve(
        algorithm=name,
        seed=seed,
        held_out=tuple((r.step, r.evaluation.mean) for r in reports if r.evaluation),
        reward=tuple((r.step, r.rewards.mean) for r in reports if r.rewards),
    )
    kept.write_bytes(msgspec.json.encode(found))
    return found


def done(stack: Stack, name: str, spec: Mapping[str, Any]) -> str:
    """Run the job to its end; returns its uid."""
    job = stack.submit(name, spec)
    ended = stack.finished(name, seconds=1800)
    assert ended.state == "Complete", f"{name}: {ended.message}"
    return job.metadata.uid


def spec_of(material: Material, algorithm: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The demonstration, shorter, with two actors that stay."""
    spec = placed(files.read(ROOT / "deploy/examples/demo.yaml")["spec"], material)
    return {
        "seed": seed,
        "model": spec["model"],
        "dataset": spec["dataset"],
        "algorithm": algorithm,
        "training": spec["training"]
        | {"totalSteps": STEPS, "promptsPerStep": PROMPTS, "miniBatches": 2},
        "evaluation": {"everySteps": 2, "prompts": HELD_OUT, "samplesPerPrompt": 2},
        "reward": spec["reward"],
        "decode": {"engine": "torch", "replicas": 2, "slots": 128, "device": "cpu"},
        "learner": spec["learner"],
        "checkpoint": {"everySteps": STEPS},
    }
