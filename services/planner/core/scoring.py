"""Accepted samples that wait for a score: when to ask again, when to give up (pure)."""

from __future__ import annotations

import math
from heapq import heappop, heappush

from ebbtide.wire import LARGEST_SCORE, Invalid, RewardBeat, Score, Value

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_BEAT_SECONDS = 5.0


class ScoringDesk:
    """Waiting samples by number. A try ends by a verdict, an error, or the deadline.

    A sample waits once for each of its turns, so tries have names: the old turn's deadline is not
    the new one's.
    `tries`: how often a sample may be tried; `deadline`: seconds per try; `idle`: scorers that
    idle this long while samples wait have lost their queue; `grace`: what every sample has left
    at least when a planner takes over, for its score may have come meanwhile. Moments are those
    of a clock that stands while the broker is away.
    """

    def __init__(self, *, tries: int, deadline: float, idle: float, grace: float) -> None:
        self._tries, self._deadline, self._idle = tries, deadline, idle
        self._grace = min(grace, deadline)
        self._waiting: dict[int, int] = {}
        self._named: dict[int, int] = {}
        self._names = 0
        self._due: list[tuple[float, int, int]] = []
        self._again: list[tuple[float, int, int]] = []
        self._beats: dict[str, tuple[float, RewardBeat]] = {}
        self._moved = -math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        """No sample waits any more."""
        self._waiting.clear()
        self._named.clear()
        self._due.clear()
        self._again.clear()

    def ask(self, sample: int, now: float) -> None:
        """A first try of `sample` begins."""
        self._begin(sample, 1, now, self._deadline)

    def resume(self, sample: int, waited: float, now: float) -> None:
        """Go on with a sample that has waited for so long already, under earlier planners."""
        spent = min(int(waited // self._deadline), self._tries - 1)
        left = (spent + 1) * self._deadline - waited
        self._begin(sample, spent + 1, now, max(left, self._grace))

    def done(self, sample: int, now: float) -> None:
        """The sample has its verdict, or was given up."""
        self._waiting.pop(sample, None)
        self._named.pop(sample, None)
        self._moved = now

    def failed(self, sample: int, now: float) -> bool:
        """An error ends the try; another follows after a pause. False if none is left."""
        current = self._waiting.get(sample, self._tries)
        self._moved = now
        if current >= self._tries:
            return False
        pause = min(_FIRST_PAUSE * 2 ** (current - 1), _LONGEST_PAUSE)
        self._waiting[sample] = current + 1
        heappush(self._again, (now + pause, sample, self._name(sample)))
        return True

    def overdue(self, now: float) -> list[int]:
        """Samples whose present try ran out of time."""
        late = []
        while self._due and self._due[0][0] <= now:
            _, sample, name = heappop(self._due)
            if self._named.get(sample) == name:
                late.append(sample)
        return late

    def again(self, now: float) -> list[int]:
        """Samples to ask for now: after an error's pause, or because the queue was lost."""
        ready = []
        while self._again and self._again[0][0] <= now:
            _, sample, name = heappop(self._again)
            if self._named.get(sample) == name:
                ready.append(sample)
                self._begin(sample, self._waiting[sample], now, self._deadline)
        return ready or self._forgotten(now)

    def hear(self, beat: RewardBeat, now: float) -> None:
        """A scorer's heartbeat."""
        _, before = self._beats.get(beat.instance, (0.0, beat))
        if beat.busy or beat.scored != before.scored:
            self._moved = now
        self._beats[beat.instance] = (now, beat)

    def _begin(self, sample: int, current: int, now: float, left: float) -> None:
        self._waiting[sample] = current
        heappush(self._due, (now + left, sample, self._name(sample)))
        self._moved = max(self._moved, now)

    def _name(self, sample: int) -> int:
        """A name for what the sample waits for now."""
        self._names += 1
        self._named[sample] = self._names
        return self._names

    def _forgotten(self, now: float) -> list[int]:
        """All waiting samples, if scorers are up, take work, and have had none for a while."""
        live = [beat for heard, beat in self._beats.values() if now - heard < _BEAT_SECONDS]
        ready = any(not beat.breaker_open for beat in live)
        if not self._waiting or not ready or now - self._moved < self._idle:
            return []
        self._moved = now
        paused = {sample for _, sample, _ in self._again}
        return [sample for sample in self._waiting if sample not in paused]


def verdict(score: Score) -> Score:
    """The score as it counts: a value that is no number of usual size is nobody's worth."""
    if isinstance(score, Value) and not abs(score.total) <= LARGEST_SCORE:
        return Invalid(why=f"the score is {score.total}, no number up to {LARGEST_SCORE:g}")
    return score
