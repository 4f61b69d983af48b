"""Weights & Biases: a run in the project `ebbtide`; offline unless WANDB_MODE says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping

import wandb

from ebbtide.adapters.trackers import folder
from ebbtide.tracking import TrackedRun

PROJECT = "ebbtide"


class WeightsAndBiases:
    """Logs one row per step; `step` is a column, since W&B's own counter cannot go back."""

    def __init__(self, run: wandb.Run) -> None:
        self._run = run
        run.define_metric("*", step_metric="step")

    def step(self, number: int, at: float, figures: Mapping[str, float]) -> None:
        """One row."""
        self._run.log({"step": number, "committed_at": at, **figures})

    def end(self, state: str) -> None:
        """Close the run."""
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "Complete" else 1)


def open_run(where: str, run: TrackedRun) -> WeightsAndBiases:
    """A new run below `where`/wandb, which `wandb sync` uploads."""
    quiet = wandb.Settings(
        silent=True, x_disable_stats=True, x_disable_meta=True, console="off", save_code=False
    )
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=run.name,
        dir=str(folder(where)),
        config={"uid": run.uid, **run.spec},
        mode="online" if os.environ.get("WANDB_MODE") == "online" else "offline",
        settings=quiet,
    )
    return WeightsAndBiases(opened)
