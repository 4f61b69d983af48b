"""16 L40S-like actors that decode Qwen2.5-3B with GSM8K-like lengths, in real time.

Numbers (reference: published shapes and cards): weights of 6.17 GB at 80 % of 864 GB/s and 0.08 ms
for each of 36 layers are 11.8 ms a token; 50 % of 362 TFLOPS and 250 tokens of context at 60 % of
the bandwidth are 0.052 ms more per sample; a prompt token takes 0.034 ms. Answers: log-normal, mean
311, sigma 0.42, of which the prompt decides 90 %, so that two thirds of the prompts change by
less than 50 tokens from epoch to epoch. 256 prompts of 100 tokens, 3 answers each; each step is
an epoch, and the first teaches lengths, the second settles the pool. No answer is right, so the
learner has nothing to compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ablation.runs import SECONDS, Setting, write_prompts
from benchmarks.ablation.variants import Variant

ACTORS, PROMPTS, GROUP, LIMIT, PROMPT_TOKENS = 16, 256, 3, 1024, 100
SPEED = 1.0
"""Emulated seconds in one of ours. Above 1 the run is shorter, but the platform's own time, which
no speed changes, weighs more."""
STEPS, WARMUP = 7, 2
EMULATION = {
    "meanTokens": 311.0,
    "sigma": 0.42,
    "promptShare": 0.9,
    "tpotMs": 11.8 / SPEED,
    "tpotPerRowMs": 0.052 / SPEED,
    "prefillMsPerToken": 0.034 / SPEED,
}
PRICES = [
    {"pool": "l40s", "perHour": 1.861},
    {"pool": "learner", "perHour": 2 * 30.131},
    {"pool": "default", "perHour": 0.05},
]
"""On demand, a GPU of the actors alone, and two nodes of eight for the learner, which waits."""


def setting(folder: Path) -> Setting:
    """`folder` holds the model, and gets the prompts."""
    prompts = write_prompts(folder / "emulated.jsonl", PROMPTS, tokens=PROMPT_TOKENS)
    return Setting("emulated", lambda v: spec(folder / "model", prompts, v), STEPS, WARMUP)


def spec(folder: Path, prompts: Path, variant: Variant) -> Mapping[str, Any]:
    """The job of one variant."""
    actors = round(ACTORS * variant.actors)
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
            "engine": "emulated",
            "pool": "l40s",
            "slots": 256,
            "replicas": actors,
            "minReplicas": 1,
            "maxReplicas": actors,
            "emulation": {**EMULATION, "prefixCache": variant.dedup},
        },
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu", "pool": "learner"},
        "planner": dict(variant.planner),
        "prices": PRICES,
        "checkpoint": {"everySteps": 1000},
    }
