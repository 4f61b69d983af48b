"""How long an update may wait for storage (pure)."""

from __future__ import annotations

from ebbtide.wire import Refusal
from services.learner.core.desk import Outcome


class Patience:
    """The planner asks again for what was refused as temporary; after `seconds` it is told to stop.

    A full disk does not empty itself, and nobody reads the refusals that are tried again: the
    last one has another code, and ends the job with its reason.
    """

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def judge(self, outcome: Outcome, now: float) -> Outcome:
        """The outcome of one try at `now` as the planner should hear it."""
        if not isinstance(outcome, Refusal) or outcome.code != "temporary":
            self._since = None
            return outcome
        self._since = now if self._since is None else self._since
        waited = now - self._since
        if waited < self._seconds:
            return outcome
        return Refusal("storage", f"in vain for {waited:.0f} s: {outcome.detail}")
