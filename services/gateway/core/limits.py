"""Rate limits: one token bucket per tenant, on the caller's clock."""

from __future__ import annotations

from collections import OrderedDict

MAX_BUCKETS = 10_000


class Buckets:
    """Token buckets by name. `rate` tokens a second come back, at most `burst` are kept."""

    def __init__(self, *, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> float:
        """Take one token at time `now` (seconds): 0 when there was one, else seconds to wait."""
        level, since = self._levels.pop(name, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._rate)
        granted = level >= 1.0
        self._levels[name] = (level - 1.0 if granted else level, now)
        if len(self._levels) > MAX_BUCKETS:
            self._levels.popitem(last=False)
        return 0.0 if granted else (1.0 - level) / self._rate
