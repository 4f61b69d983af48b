"""Published verdicts as spans of their steps' traces (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from ebbtide.tracing import Span, StepTrace
from ebbtide.wire import ScoreReady, TurnReady


class Judged(msgspec.Struct, frozen=True):
    """A verdict, and the Unix time at which its answer began to be judged."""

    ready: ScoreReady | TurnReady
    attempt: int
    began: float


def judged_spans(batch: Sequence[Judged], pod: str, now: float) -> Iterator[Span]:
    """One span for the answers of each step, from the first one's beginning until `now`."""
    steps: defaultdict[StepTrace, list[Judged]] = defaultdict(list)
    for one in batch:
        key = one.ready.key
        steps[StepTrace(key.job_uid, one.attempt, key.step_issued)].append(one)
    for trace, judged in steps.items():
        told = {
            "ebbtide.samples": len(judged),
            "ebbtide.judge_seconds": sum(one.ready.seconds for one in judged),
        }
        start = min(one.began for one in judged)
        yield trace.part("reward", "score samples", pod, start, now, told)
