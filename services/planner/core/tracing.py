"""A committed step as spans: the step, and its phases one after the other (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.reports import StepReport
from ebbtide.tracing import Span, StepTrace

PHASES = ("plan", "sync", "decode", "score", "learn")


def step_spans(report: StepReport, pod: str) -> Iterator[Span]:
    """The root of the step's trace first; phases of no length are left out."""
    trace = StepTrace(report.job_uid, report.attempt, report.step)
    start = report.started_at - report.phases.plan
    told: dict[str, str | int | float] = {
        "ebbtide.kind": report.kind,
        "ebbtide.policy": report.policy,
        "ebbtide.samples": report.samples.expected,
        "ebbtide.tokens": report.tokens.response,
    }
    if report.rewards:
        told["ebbtide.reward"] = report.rewards.mean
    yield trace.whole("planner", start, start + report.seconds, told)
    for phase in PHASES:
        seconds = getattr(report.phases, phase)
        if seconds > 0:
            yield trace.part("planner", f"phase {phase}", pod, start, start + seconds, {})
        start += seconds
