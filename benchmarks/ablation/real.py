"""The torch engine on the demonstration's architecture, up to four actors, few steps.

A small model with random weights: answers end by chance, and lengths differ from prompt to prompt.
All actors share the cores of one machine, so their number says less about time here than where
each has a GPU of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ablation.runs import SECONDS, Setting, write_prompts
from benchmarks.ablation.variants import Variant

ACTORS, PROMPTS, GROUP, LIMIT, PROMPT_TOKENS = 4, 16, 4, 256, 64
STEPS, WARMUP = 6, 2
PRICES = [
    {"pool": "default", "perHour": 1.0},
    {"pool": "learner", "perHour": 4.0},
]


def setting(folder: Path) -> Setting:
    """`folder` holds the model, and gets the prompts."""
    prompts = write_prompts(folder / "real.jsonl", PROMPTS, tokens=PROMPT_TOKENS)
    return Setting("real", lambda v: spec(folder / "model", prompts, v), STEPS, WARMUP)


def spec(folder: Path, prompts: Path, variant: Variant) -> Mapping[str, Any]:
    """The job of one variant; siblings are computed once by the prefill service."""
    return {
        "model": {"uri": str(folder)},
        "dataset": {
            "train": {"type": "jsonl", "uri": str(prompts)},
            "maxPromptTokens": PROMPT_TOKENS,
        },
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {"totalSteps": STEPS, "promptsPerStep": PROMPTS, "maxResponseTokens": LIMIT},
        "reward": {"components": [{"type": "exact", "name": "never"}]},
        "decode": {
            "engine": "torch",
            "device": "cpu",
            "replicas": ACTORS,
            "minReplicas": 1,
            "maxReplicas": ACTORS,
        },
        "prefill": {"mode": "service" if variant.dedup else "colocated", "device": "cpu"},
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu", "pool": "learner"},
        "planner": dict(variant.planner),
        "prices": PRICES,
        "checkpoint": {"everySteps": 1000},
    }
