"""When spot actors are taken away: a generator with stated rates, notice and capacity (pure)."""

from __future__ import annotations

import numpy as np

from services.planner.simulate.policies import Policy
from services.planner.simulate.rollout import Layout, Lost
from services.planner.simulate.site import BASE, Site

_HORIZON = 3600.0


class Interruptions:
    """Each spot actor is lost at a constant rate; the same seed gives every policy the same luck."""

    def __init__(self, site: Site, policy: Policy, seed: int) -> None:
        self._spot = site.scenario.spot if policy.spot else None
        self._seed, self._most = seed, site.most

    def capacity(self, step: int) -> int | None:
        """Spot actors that can be had in this step; None: the policy uses none."""
        if self._spot is None:
            return None
        random = np.random.default_rng((self._seed, step, 8))
        return int(random.binomial(self._most, self._spot.available))

    def of(self, step: int, layout: Layout) -> list[Lost]:
        """What is lost in this step, if it lasts that long."""
        if self._spot is None or not self._spot.interruptions_per_hour:
            return []
        random = np.random.default_rng((self._seed, step, 9))
        mean = 3600.0 / self._spot.interruptions_per_hour
        times = random.exponential(mean, len(layout.seats))
        return [
            Lost(actor, float(at), self._spot.notice)
            for actor, (at, seat) in enumerate(zip(times, layout.seats, strict=True))
            if seat.kind == BASE and at < _HORIZON
        ]
