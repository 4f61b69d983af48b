"""report.json (docs/report.md says what each figure means)."""

from __future__ import annotations

import json
from typing import Any

from ebbtide.api import CostReport
from ebbtide.report.data import ReportData
from ebbtide.reports import StepReport, summarise


def figures(data: ReportData) -> dict[str, Any]:
    """The figures as JSON values."""
    summary = summarise(data.steps)
    kept = summary.model_dump(mode="json", exclude={"cost", "currency", "seconds"})
    return {
        "job": data.job.name,
        "uid": data.job.metadata.uid,
        "state": data.job.state,
        "reason": data.job.reason,
        "seconds": data.seconds,
        "step_seconds": summary.seconds,
        **kept,
        "cost": _cost(data.cost),
        "series": [_row(step) for step in data.steps],
    }


def render_json(data: ReportData) -> str:
    """The file's content."""
    return json.dumps(figures(data), indent=2, ensure_ascii=False) + "\n"


def _cost(cost: CostReport) -> dict[str, Any]:
    return {
        "total": cost.total,
        "currency": cost.currency,
        "by_role": cost.by_role,
        "by_cause": cost.by_cause,
        "held_seconds": cost.held_seconds,
        "unpriced_seconds": cost.unpriced_seconds,
        "parts": [part.model_dump(mode="json") for part in cost.parts],
    }


def _row(step: StepReport) -> dict[str, Any]:
    return {
        "step": step.step,
        "kind": step.kind,
        "seconds": step.seconds,
        "reward": step.rewards.mean if step.rewards else None,
        "eval_reward": step.evaluation.mean if step.evaluation else None,
        "learner": step.learner.stats if step.learner else {},
        "response_tokens": step.tokens.response,
        "actors": len(step.actors),
        "phases": step.phases.model_dump(mode="json"),
    }
