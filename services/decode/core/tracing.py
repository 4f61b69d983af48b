"""Finished samples as spans of their steps' traces (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ebbtide.tracing import Span, StepTrace
from ebbtide.wire import Rollout


def decoded(batch: Sequence[Rollout], pod: str, now: float) -> Iterator[Span]:
    """One span for the samples of each step, from the first one's arrival until `now`."""
    steps: defaultdict[StepTrace, list[Rollout]] = defaultdict(list)
    for rollout in batch:
        key = rollout.key
        steps[StepTrace(key.job_uid, rollout.dispatch.attempt, key.step_issued)].append(rollout)
    for trace, rollouts in steps.items():
        taken = [r.timings.queued + r.timings.prefill + r.timings.decode for r in rollouts]
        told = {
            "ebbtide.samples": len(rollouts),
            "ebbtide.tokens": sum(r.n_tokens for r in rollouts),
            "ebbtide.queued_seconds": sum(r.timings.queued for r in rollouts),
            "ebbtide.prefill_seconds": sum(r.timings.prefill for r in rollouts),
            "ebbtide.decode_seconds": sum(r.timings.decode for r in rollouts),
            "ebbtide.first_sample": f"{rollouts[0].key.group}/{rollouts[0].key.index}",
        }
        yield trace.part("decode", "decode samples", pod, now - max(taken), now, told)
