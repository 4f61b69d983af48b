"""A place for one worker at a time, and how long it has been at its answer."""

from __future__ import annotations

from services.reward.engine.process import Worker


class Slot:
    """`patience`: ticks that a worker may spend on one answer before it is killed."""

    def __init__(self, *, patience: int) -> None:
        self.worker: Worker | None = None
        self.failed_starts = 0
        self.overstayed = False
        self._patience = patience
        self._left = 0
        self._ticks = 0

    def begin(self, answers: int) -> None:
        """A batch is handed over (or, with 0, done)."""
        self._left, self._ticks, self.overstayed = answers, 0, False

    def advance(self) -> None:
        """The worker turned to its next answer."""
        self._left, self._ticks = self._left - 1, 0

    def tick(self) -> None:
        """Time passes; kills the worker that has spent all patience on one answer."""
        if not self._left or self.worker is None:
            return
        self._ticks += 1
        if self._ticks > self._patience:
            self.overstayed = True
            self.worker.kill()
