"""What actors count since they began, summed up step by step (pure)."""

from __future__ import annotations

from collections import defaultdict

from ebbtide.wire import Heartbeat

Sums = dict[tuple[str, str], float]


class CountMeter:
    """Takes in heartbeats, an actor's last one too: what it counted outlives it.

    `takes_over`: what actors counted before they are first heard is an earlier planner's.
    """

    def __init__(self, *, takes_over: bool = False) -> None:
        self._takes_over = takes_over
        self._last: dict[str, tuple[str, Sums]] = {}
        self._sums: defaultdict[tuple[str, str], float] = defaultdict(float)

    def hear(self, beat: Heartbeat) -> None:
        """Take in a heartbeat that is not old."""
        now = {(one.name, one.label): one.value for one in beat.counted}
        first = (beat.incarnation, now if self._takes_over else {})
        incarnation, before = self._last.get(beat.actor, first)
        known = before if incarnation == beat.incarnation else {}
        self._last[beat.actor] = (beat.incarnation, now)
        for key, value in now.items():
            self._sums[key] += max(0.0, value - known.get(key, 0.0))

    def taken(self) -> dict[str, dict[str, float]]:
        """What was counted since the last call, by name and label."""
        found: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for (name, label), value in sorted(self._sums.items()):
            found[name][label] = value
        self._sums.clear()
        return dict(found)
