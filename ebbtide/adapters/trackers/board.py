"""TensorBoard: event files below a folder, one subfolder per job."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tensorboardX import SummaryWriter

from ebbtide.adapters.trackers import folder
from ebbtide.tracking import TrackedRun


class TensorBoard:
    """Writes scalars."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def step(self, number: int, at: float, figures: Mapping[str, float]) -> None:
        """One scalar per figure."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, number, walltime=at)
        self._writer.flush()

    def end(self, state: str) -> None:
        """Close the file."""
        self._writer.add_text("state", state)
        self._writer.close()


def open_run(where: str, run: TrackedRun) -> TensorBoard:
    """A new event file in `where`/NAME."""
    writer = SummaryWriter(str(folder(where) / run.name))
    spec = json.dumps(run.spec, indent=1, default=str)
    writer.add_text("job", f"uid {run.uid}\n\n```\n{spec}\n```")
    return TensorBoard(writer)
