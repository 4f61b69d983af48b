"""Spot actors for the bulk against all on demand: dollars of actors, at most 5 % more time.

Judged is the saving in dollars of actors while they decode, NaN if time grows by more than 5 %.
Interruptions come from a generator; the rate is swept beside the scenario's.
"""

from __future__ import annotations

import math

from benchmarks.harness import Measured
from benchmarks.simulated import Seeds, Setting, Sweep, load, sweep
from services.planner.simulate.policies import OURS, SPOTTED
from services.planner.simulate.statistics import Estimate

RATES = (0.0, 2.0, 10.0)
SLOWER = 1.05
SEEDS = 10


def measure() -> Measured:
    """Each rate on the final seeds."""
    rows: list[tuple[object, ...]] = []
    value = math.nan
    for rate in RATES:
        inputs = load("spot")
        spot = inputs.scenario.spot
        assert spot is not None, "the scenario has spot actors"
        changed = load("spot", spot=spot.model_copy(update={"interruptions_per_hour": rate}))
        found = sweep(changed, [Setting(OURS), Setting(SPOTTED)], seeds=SEEDS)
        time, cost, whole = (_ratio(found, figure) for figure in (0, 1, 2))
        rows.append((rate, time.words(), (1 - cost.mean) * 100, (1 - whole.mean) * 100))
        if rate == spot.interruptions_per_hour:
            value = (1 - cost.mean) * 100 if time.mean <= SLOWER else math.nan
    return Measured(
        value,
        (
            "lost per actor and hour",
            "time, of on demand",
            "actors cheaper %",
            "all roles cheaper %",
        ),
        rows,
    )


def _ratio(found: Sweep, figure: int) -> Estimate:
    def ratio(seeds: Seeds) -> float:
        demand, spot = found.shares[:, seeds, figure].mean(axis=1)
        return float(spot / demand)

    return found.interval(ratio)
