"""Prompts that the service computed as spans of the steps that needed them (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from ebbtide.tracing import Span, StepTrace


class Prefilled(msgspec.Struct, frozen=True):
    """A prompt of `tokens` tokens for a sample of `trace`'s step; times are Unix seconds."""

    trace: StepTrace
    tokens: int
    began: float
    ended: float


def prefilled(batch: Sequence[Prefilled], pod: str) -> Iterator[Span]:
    """One span for the prompts of each step, from the first one's beginning to the last one's end."""
    steps: defaultdict[StepTrace, list[Prefilled]] = defaultdict(list)
    for one in batch:
        steps[one.trace].append(one)
    for trace, prompts in steps.items():
        told = {
            "ebbtide.prompts": len(prompts),
            "ebbtide.tokens": sum(one.tokens for one in prompts),
        }
        start = min(one.began for one in prompts)
        end = max(one.ended for one in prompts)
        yield trace.part("prefill", "compute prompts", pod, start, end, told)
