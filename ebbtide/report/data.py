"""What a report is made of, all of it from the API."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ebbtide.api import CostReport, Job
from ebbtide.reports import StepReport


class Source(Protocol):
    """The part of `ebbtide.client.Client` that a report needs."""

    def get(self, name: str) -> Job: ...

    def metrics(self, name: str) -> list[dict[str, Any]]: ...

    def cost(self, name: str) -> CostReport: ...


class ReportData(msgspec.Struct, frozen=True):
    """One job, its committed steps in order, and its cost."""

    job: Job
    steps: tuple[StepReport, ...]
    cost: CostReport

    @property
    def seconds(self) -> float:
        """From the job's creation to its end; of a job that runs, the sum of its steps."""
        end = str(self.job.status.get("completionTime") or "")
        if not end:
            return sum(step.seconds for step in self.steps)
        return (_time(end) - _time(self.job.metadata.creation_timestamp)).total_seconds()


def collect(source: Source, name: str) -> ReportData:
    """Ask for everything that the report shows."""
    job = source.get(name)
    steps = [StepReport.model_validate_json(json.dumps(raw)) for raw in source.metrics(name)]
    return ReportData(job=job, steps=tuple(steps), cost=source.cost(name))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
