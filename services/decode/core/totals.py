"""What an actor counts and hands on with its heartbeats, so that it outlives the process (pure)."""

from __future__ import annotations

from collections import defaultdict

from ebbtide.wire import Counted


class Totals:
    """Sums since the process began, by name and label: those of `ebbtide.catalogue.HANDED`."""

    def __init__(self) -> None:
        self._sums: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, name: str, label: str = "", by: float = 1.0) -> None:
        """Count `by` more."""
        self._sums[name, label] += by

    def counted(self) -> tuple[Counted, ...]:
        """All of them, in order."""
        return tuple(Counted(*key, value) for key, value in sorted(self._sums.items()))
