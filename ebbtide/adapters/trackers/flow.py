"""MLflow: a run in the experiment `ebbtide`, in a folder or at a tracking server."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ebbtide.adapters.trackers import folder
from ebbtide.tracking import TrackedRun

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # folders are what works offline

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

EXPERIMENT = "ebbtide"
_STATES = {"Complete": "FINISHED", "Cancelled": "KILLED"}


class MlFlow:
    """Logs one batch of metrics per step."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def step(self, number: int, at: float, figures: Mapping[str, float]) -> None:
        """All figures at once."""
        stamp = round(at * 1000)
        metrics = [Metric(name, value, stamp, number) for name, value in figures.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def end(self, state: str) -> None:
        """Close the run."""
        self._client.set_terminated(self._run_id, _STATES.get(state, "FAILED"))


def open_run(where: str, run: TrackedRun) -> MlFlow:
    """A new run; `where` with a scheme (http://...) is a tracking server."""
    address = where if "://" in where else folder(where).resolve().as_uri()
    client = MlflowClient(tracking_uri=address)
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
    made = client.create_run(experiment, run_name=run.name, tags={"ebbtide.uid": run.uid})
    client.log_dict(made.info.run_id, dict(run.spec), "job.json")
    return MlFlow(client, made.info.run_id)
