"""7B with tensor-parallel tail actors: 256 x 8 on L40S, and long chains of thought on H100.

Judged is the worst of both: found over its limit. Fastest is wanted within 52 % of static's cost;
the bound on time stands beside.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Measured
from benchmarks.simulated import CLAIMS, Claim, Seeds, Sweep, load, sweep, tailed, worst
from services.planner.simulate.statistics import Estimate

POOLS = (0.5, 2.0, 8.0)
COST, SPEED = 0.52, 1.35


def measure() -> Measured:
    """Both settings on the final seeds."""
    claims: list[Claim] = []
    rows: list[tuple[object, ...]] = []
    for name in ("rlhfless-7b", "long-cot-7b-h100"):
        found = sweep(load(name), tailed(POOLS))
        claims.append(Claim(f"{name}: time within {COST:g} of the cost", _time(found), 1 / SPEED))
        rows += [
            (f"{name}: {p.time:.3f} of the time", f"{p.cost:.3f} of the cost", "", "")
            for p in found.points("ours-tail")
        ]
        rows.append((f"{name}: bound on time", f"{float(found.bounds.mean()):.3f}", "", ""))
    return Measured(worst(claims), CLAIMS, [*[claim.row() for claim in claims], *rows])


def _time(found: Sweep) -> Estimate:
    """Of the fastest setting within the cost."""

    def fastest(seeds: Seeds) -> float:
        points = found.points("ours-tail", seeds)
        return min((p.time for p in points if p.cost <= COST), default=float(np.nan))

    return found.interval(fastest)
