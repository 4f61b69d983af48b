"""Specs of short jobs, and what the checker says of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stack import Stack
from tests.checker.reader import read
from tests.checker.verdict import Verdict, examine

Spec = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """What jobs are made of: a model's folder and a file of prompts."""

    model: Path
    prompts: Path

    def spec(self, **changes: Any) -> Spec:
        """A job of a few quick steps on the emulated engine; `changes` replace whole parts."""
        base: Spec = {
            "model": {"uri": str(self.model)},
            "dataset": {
                "train": {"type": "jsonl", "uri": str(self.prompts)},
                "maxPromptTokens": 32,
            },
            "algorithm": {"type": "grpo", "groupSize": 4},
            "training": training(),
            "reward": {"components": [first_half()]},
            "decode": {"engine": "emulated", "replicas": 2, "emulation": emulation()},
            "learner": {"ranks": 2, "device": "cpu"},
            "checkpoint": {"everySteps": 2},
            "backoffLimit": 1000,
        }
        return base | changes


def training(**changes: Any) -> Spec:
    """Six steps of 8 prompts."""
    base = {
        "totalSteps": 6,
        "promptsPerStep": 8,
        "maxResponseTokens": 96,
        "learningRate": 1e-3,
    }
    return base | changes


def emulation(**changes: Any) -> Spec:
    """Answers that take one to two seconds."""
    return {"meanTokens": 48.0, "sigma": 0.5, "tpotMs": 20.0} | changes


def first_half() -> Spec:
    """A reward that differs within groups: whether the answer begins in the first half."""
    return {"type": "regex", "name": "early", "pattern": "^[a-m]"}


def judged(stack: Stack, job_uid: str) -> Verdict:
    """The independent checker's verdict on an ended job."""
    return examine(read(stack.blobs, job_uid, stack.audits))
