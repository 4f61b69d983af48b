"""Specs of short jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Spec = dict[str, Any]


def spec(model: Path, prompts: Path, **changes: Any) -> Spec:
    """A job of a few quick steps on the emulated engine; `changes` replace whole parts."""
    base: Spec = {
        "model": {"uri": str(model)},
        "dataset": {"train": {"type": "jsonl", "uri": str(prompts)}, "maxPromptTokens": 32},
        "algorithm": {"type": "grpo", "groupSize": 4},
        "training": training(),
        "reward": {"components": [vowel()]},
        "decode": {"engine": "emulated", "replicas": 2, "emulation": emulation()},
        "learner": {"ranks": 2, "device": "cpu"},
        "checkpoint": {"everySteps": 2},
        "backoffLimit": 1000,
    }
    return base | changes


def training(**changes: Any) -> Mapping[str, Any]:
    """Eight steps of 8 prompts."""
    base = {
        "totalSteps": 8,
        "promptsPerStep": 8,
        "maxResponseTokens": 96,
        "learningRate": 1e-3,
    }
    return base | changes


def emulation(**changes: Any) -> Mapping[str, Any]:
    """Answers of about one second."""
    return {"meanTokens": 48, "sigma": 0.5, "tpotMs": 20.0} | changes


def vowel() -> Mapping[str, Any]:
    """A reward that differs within groups: whether the answer begins in the first half."""
    return {"type": "regex", "name": "early", "pattern": "^[a-m]"}
