"""7B with tensor-parallel tail actors: 256 x 8 on L40S, and long chains of thought on H100.

Judged is the worst of both: found over its limit. Fastest is wanted within 52 % of static's cost.
Beside it stand the same plan with every length known (the oracle's), which is what prediction could
reach at best, and the bound on time.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Measured
from benchmarks.simulated import (
    CLAIMS,
    KNOWN_TAIL,
    Claim,
    Seeds,
    Setting,
    Sweep,
    load,
    sweep,
    tailed,
    worst,
)
from services.planner.simulate.policies import TAILED
from services.planner.simulate.statistics import Estimate

POOLS = (0.5, 2.0, 8.0)
COST, SPEED = 0.52, 1.35


def measure() -> Measured:
    """Both settings on the final seeds."""
    claims: list[Claim] = []
    rows: list[tuple[object, ...]] = []
    for name in ("rlhfless-7b", "long-cot-7b-h100"):
        known = [Setting(KNOWN_TAIL, pools) for pools in POOLS]
        found = sweep(load(name), [*tailed(POOLS), *known])
        what = f"{name}: time within {COST:g} of the cost"
        claims.append(Claim(what, _time(found, TAILED.name), 1 / SPEED))
        rows.append(Claim(f"{what}, oracle", _time(found, KNOWN_TAIL.name), 1 / SPEED).row())
        rows += [
            (f"{name}: {who} at {p.time:.3f} of the time", f"{p.cost:.3f} of the cost", "", "")
            for who in (TAILED.name, KNOWN_TAIL.name)
            for p in found.points(who)
        ]
        rows.append((f"{name}: bound on time", f"{float(found.bounds.mean()):.3f}", "", ""))
    return Measured(worst(claims), CLAIMS, [*[claim.row() for claim in claims], *rows])


def _time(found: Sweep, name: str) -> Estimate:
    """Of the policy's fastest setting within the cost."""

    def fastest(seeds: Seeds) -> float:
        points = found.points(name, seeds)
        return min((p.time for p in points if p.cost <= COST), default=float(np.nan))

    return found.interval(fastest)
