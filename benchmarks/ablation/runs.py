"""Runs the variants of a part, one after the other: beside another job steps take longer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ablation.figures import Outcome, step_of
from benchmarks.ablation.variants import Variant
from benchmarks.progress import step_reports
from benchmarks.stack import Stack
from ebbtide.api import Job

SECONDS = 1500.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Setting:
    """One part. `spec`: the job of a variant.

    The first `warmup` steps teach and do not count; nor does the last one, after which actors go
    at once, for nobody needs them again.
    """

    part: str
    spec: Callable[[Variant], Mapping[str, Any]]
    steps: int
    warmup: int


def run_all(stack: Stack, setting: Setting, variants: Sequence[Variant]) -> dict[str, Outcome]:
    """The outcome of each variant, by name."""
    return {v.name: _run(stack, setting, number, v) for number, v in enumerate(variants)}


def _ended(stack: Stack, name: str) -> Job:
    """Asked seldom, for asking costs the cores on which the job is measured."""
    deadline = time.monotonic() + SECONDS
    while (job := stack.ended(name)) is None:
        assert time.monotonic() < deadline, f"{name} has not ended within {SECONDS:.0f} s"
        time.sleep(_POLL_SECONDS)
    return job


def _run(stack: Stack, setting: Setting, number: int, variant: Variant) -> Outcome:
    name = f"{setting.part}-{number}"
    job = stack.submit(name, setting.spec(variant))
    ended = _ended(stack, name)
    assert ended.state == "Complete", f"{variant.name}: {ended.message}"
    reports = step_reports(stack.blobs, job.metadata.uid)
    lost = [r for r in reports if r.samples.abandoned]
    assert not lost, f"{variant.name}: samples were abandoned in step {lost[0].step}"
    found = Outcome([step_of(report) for report in reports[setting.warmup : setting.steps - 1]])
    told = f"{found.seconds:.2f} s a step, {found.actor_seconds:.1f} actor-seconds"
    print(f"{setting.part}: {variant.name}: {told}", file=sys.stderr, flush=True)
    return found


def write_prompts(path: Path, count: int, *, tokens: int) -> Path:
    """Different prompts of so many tokens, for a tokenizer with one token per character."""
    texts = [f"count to {n} ".ljust(tokens, "x") for n in range(count)]
    rows = [{"prompt": text, "answer": "no such answer"} for text in texts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
