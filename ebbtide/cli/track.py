"""track: a job's steps to an experiment tracker, as they are committed."""

from __future__ import annotations

import json

from ebbtide.adapters.trackers import open_tracker
from ebbtide.cli.ending import say
from ebbtide.client import Client
from ebbtide.reports import StepReport
from ebbtide.tracking import TrackedRun, ended_at, figures


def track_job(name: str, *, kind: str, where: str) -> None:
    """Follow the job from its first step until it ends."""
    with Client.from_state() as client:
        job = client.get(name)
        tracker = open_tracker(kind, where, TrackedRun(name, job.metadata.uid, job.spec))
        state, steps = "Interrupted", 0
        try:
            for event in client.events(name):
                if event.type == "step":
                    report = StepReport.model_validate_json(json.dumps(event.data))
                    tracker.step(report.step, ended_at(report), figures(report))
                    steps += 1
                elif event.type == "end":
                    state = str(event.data.get("state", "Complete"))
        finally:
            tracker.end(state)
    say(f"{steps} steps of {name} ({state}) are in {where}")
