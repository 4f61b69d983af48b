"""How long the phases of a step usually take (pure)."""

from __future__ import annotations

from ebbtide.reports import PhaseSeconds

_WEIGHT = 0.5


class Rhythm:
    """A moving average of each phase over the steps that this planner has seen.

    Its first step tells nothing of planning and syncing: it waited for what started beside it.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._first = True

    def heard(self, phases: PhaseSeconds, *, trained: bool) -> None:
        """A step is committed; the closing one has no update."""
        waited = ("plan", "sync") if self._first else ()
        self._first = False
        for name in ("plan", "sync", "decode", "score", *(["learn"] if trained else [])):
            new = 0.0 if name in waited else float(getattr(phases, name))
            old = self._seconds.get(name, new)
            self._seconds[name] = old + _WEIGHT * (new - old)

    def of(self, *names: str) -> float | None:
        """Seconds of these phases together; None as long as one of them is unknown."""
        known = [self._seconds.get(name) for name in names]
        return sum(s for s in known if s is not None) if None not in known else None
