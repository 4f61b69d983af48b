"""Llama-2-70B on up to 160 H100: cost at 1.03 of static's time. The paper reports 61.3 %.

Judged is the cost of ours (with and without tail actors) over static's, at most 0.48; the bound on
time is the longest answer alone on the fastest actors.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from benchmarks.simulated import lambdas, load, ours, static_counts, sweep, tailed

POOLS = (0.5, 2.0, 8.0)
TIME = 1.03


def measure() -> Measured:
    """On the final seeds."""
    inputs = load("llama2-70b-160xh100")
    settings = [*static_counts(inputs), *lambdas((0.5, 0.7, 0.9)), *ours(POOLS), *tailed(POOLS)]
    found = sweep(inputs, settings)
    cost = found.at_time(["ours", "ours-tail"], TIME)
    rows: list[tuple[object, ...]] = [(f"at {TIME:g} of the time", cost.words(), "")]
    for name in ("static-release", "rlhfless", "ours", "ours-tail"):
        rows += [(name, f"{p.cost:.3f}", f"{p.time:.3f}") for p in found.points(name)]
    rows.append(("bound on time", "", f"{float(found.bounds.mean()):.3f}"))
    return Measured(cost.mean, ("policy", "cost, of static", "time, of static"), rows)
