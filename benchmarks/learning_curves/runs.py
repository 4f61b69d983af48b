"""Runs every algorithm over three seeds, draws what came and judges the smallest gain."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Measured
from benchmarks.learning_curves import task
from benchmarks.learning_curves.loop import Loop, open_rank
from benchmarks.learning_curves.pictures import draw
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.blobs import FakeBlobs
from services.learner.engine.gang import Gang, join

SEEDS = (0, 1, 2)
STEPS, PROMPTS, GROUP = 40, 16, 8
EDGE = 5
"""Steps at either end whose means are compared."""
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {"type": "grpo"},
    "dr-grpo": {"type": "grpo", "aggregation": "dr-grpo"},
    "dapo": {"type": "dapo", "length_penalty": None},
    "gspo": {"type": "gspo"},
    "cispo": {"type": "cispo"},
    "rloo": {"type": "rloo", "kl_coefficient": 0.01},
    "reinforce-plus-plus": {"type": "reinforce-plus-plus"},
    "ppo": {"type": "ppo", "critic": {"learning_rate": 1e-3, "warmup_steps": 3}},
}
Curve = list[float]


def measure() -> Measured:
    """Train all of them; takes about five minutes on an idle core."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gang = join(0, 1, f"file://{folder}/meeting", device="cpu", timeout=60)
        starts = [task.start(folder / f"start-{seed}", seed) for seed in SEEDS]
        curves = {
            name: [_run(gang, algorithm, start, seed) for seed, start in enumerate(starts)]
            for name, algorithm in ALGORITHMS.items()
        }
        gang.leave()
    draw(curves)
    rows = [_row(name, runs) for name, runs in curves.items()]
    gains = [statistics.fmean(gain_of(run) for run in runs) for runs in curves.values()]
    return Measured(min(gains), ("algorithm", "first", "last", "gain", "worst seed"), rows)


def gain_of(curve: Curve) -> float:
    """Mean of the last EDGE steps less that of the first."""
    return statistics.fmean(curve[-EDGE:]) - statistics.fmean(curve[:EDGE])


def spec_of(algorithm: Mapping[str, Any], model: Path, *, seed: int, steps: int) -> RLHFJobSpec:
    """The job of one run."""
    return RLHFJobSpec.model_validate(
        {
            "seed": seed,
            "model": {"uri": str(model)},
            "dataset": {"train": {"type": "jsonl", "uri": "none.jsonl"}},
            "algorithm": {"group_size": GROUP, **algorithm},
            "training": {
                "total_steps": steps,
                "learning_rate": 1e-3,
                "max_response_tokens": task.LIMIT,
                "micro_batch_tokens": 2048,
            },
            "reward": {"components": ({"type": "exact", "name": "exact"},)},
            "learner": {"ranks": 1, "device": "cpu"},
        }
    )


def _run(gang: Gang, algorithm: Mapping[str, Any], start: Path, seed: int) -> Curve:
    return asyncio.run(_curve(gang, spec_of(algorithm, start, seed=seed, steps=STEPS), seed))


async def _curve(gang: Gang, spec: RLHFJobSpec, seed: int) -> Curve:
    with tempfile.TemporaryDirectory() as made:
        folder, rng = Path(made), random.Random(f"{seed}/prompts")  # noqa: S311 - no secrets
        blobs = FakeBlobs(folder=folder / "local")
        rank = open_rank(spec, gang, blobs, folder)
        await rank.start(None)
        loop = Loop(spec, rank, blobs, stop=task.STOP, seed=seed)
        curve = []
        for step in range(STEPS):
            stepped = await loop.step(step, task.prompts(rng, PROMPTS), task.reward)
            curve.append(statistics.fmean(stepped.rewards))
        await loop.close()
    return curve


def _row(name: str, runs: Sequence[Curve]) -> tuple[object, ...]:
    first = statistics.fmean(x for run in runs for x in run[:EDGE])
    last = statistics.fmean(x for run in runs for x in run[-EDGE:])
    return name, first, last, last - first, min(map(gain_of, runs))
