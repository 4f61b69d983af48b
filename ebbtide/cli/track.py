"""track: a job's steps to an experiment tracker, as they are committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ebbtide.adapters.trackers import open_tracker
from ebbtide.cli.ending import say
from ebbtide.client import Client
from ebbtide.reports import StepReport
from ebbtide.tracking import TrackedRun, Tracker, ended_at, figures


class _Teller:
    """Tells each step once for each attempt that did it."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.told: dict[int, int] = {}
        """Attempt by step."""

    def tell(self, raw: Mapping[str, Any]) -> None:
        report = StepReport.model_validate_json(json.dumps(raw))
        if self.told.get(report.step) != report.attempt:
            self._tracker.step(report.step, ended_at(report), figures(report))
            self.told[report.step] = report.attempt


def track_job(name: str, *, kind: str, where: str) -> None:
    """Follow the job from its first step until it ends; then what restarts have done again."""
    state = "Interrupted"
    with Client.from_state() as client:
        job = client.get(name)
        tracker = open_tracker(kind, where, TrackedRun(name, job.metadata.uid, job.spec))
        teller = _Teller(tracker)
        try:
            for event in client.events(name):
                if event.type == "step":
                    teller.tell(event.data)
                elif event.type == "end":
                    state = str(event.data["state"])
            for raw in client.metrics(name):  # events name each step once
                teller.tell(raw)
        finally:
            tracker.end(state)
    say(f"{len(teller.told)} steps of {name} ({state}) are in {where}")
