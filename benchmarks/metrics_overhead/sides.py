"""One side of the comparison: a stack, its job, and the CPU seconds of all its processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.metrics_overhead.figures import Pair
from benchmarks.stack import Stack, running, until
from ebbtide.demo import model

STEPS, PROMPTS, GROUP, LIMIT = 24, 16, 4, 128
SECONDS, LOOK_SECONDS = 600.0, 0.5


@dataclass(frozen=True)
class Side:
    """A stack that is up, and what its jobs are made of."""

    stack: Stack
    folder: Path

    def cpu(self) -> float:
        """Seconds of all its processes so far, those that have ended included.

        Exact while no process ends: each parent has the time of the children that it has reaped.
        """
        root = psutil.Process(self.stack.up.pids["up"])
        times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)


@contextmanager
def opened(folder: Path, environ: Mapping[str, str]) -> Iterator[Side]:
    """Start a stack with these variables; its first job finds the warmed parent ready."""
    with running(folder / "state", environ=environ) as stack:
        model.save(folder / "model", seed=0)
        rows = [{"prompt": f"count to {n}", "answer": "no such answer"} for n in range(PROMPTS)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "prompts.jsonl").write_text(lines)
        yield Side(stack, folder)


def compare(on: Side, off: Side, turn: int) -> Pair:
    """Run the same job on both, side by side."""
    sides, name = (on, off), f"run-{turn}"
    before = [side.cpu() for side in sides]
    for side in sides if turn % 2 else reversed(sides):
        side.stack.submit(name, spec(side.folder))
    for wanted in (False, True):
        for side in sides:
            _await_gone(side.stack, name, wanted=wanted)
    for side in sides:
        ended = side.stack.finished(name, seconds=SECONDS)
        assert ended.state == "Complete", ended.message
    used = [side.cpu() - began for side, began in zip(sides, before, strict=True)]
    return Pair(*used)


def _await_gone(stack: Stack, name: str, *, wanted: bool) -> None:
    """Look at the store, not at the gateway: who waits must not make it work."""

    def holds() -> bool:
        time.sleep(LOOK_SECONDS)
        return stack.gone(name) is wanted

    until(holds, seconds=SECONDS, what=f"{'the end' if wanted else 'pods'} of {name}")


def spec(folder: Path) -> Mapping[str, Any]:
    """Each step decodes the same prompts on two actors; no answer is right, so no length changes."""
    prompts = {"type": "jsonl", "uri": str(folder / "prompts.jsonl")}
    return {
        "model": {"uri": str(folder / "model")},
        "dataset": {"train": prompts, "maxPromptTokens": 64},
        "algorithm": {"type": "grpo", "groupSize": GROUP},
        "training": {
            "totalSteps": STEPS,
            "promptsPerStep": PROMPTS,
            "maxResponseTokens": LIMIT,
        },
        "reward": {"components": [{"type": "regex", "name": "early", "pattern": "^[0-4]"}]},
        "decode": {"engine": "torch", "device": "cpu", "replicas": 2},
        "planner": {"migration": "none"},
        "deadlines": {"preRunningSeconds": SECONDS},
        "learner": {"ranks": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1000},
    }
