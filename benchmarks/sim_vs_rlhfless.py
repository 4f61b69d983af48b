"""Ours against RLHFless as published, on the same answers, both as fronts over their parameter.

At the time of each of RLHFless's lambdas: how much cheaper ours is. Judged is the smallest margin
over what is wanted (20 % on 256 x 3 and on long chains of thought, anything elsewhere), in points.
The oracle's front stands beside: what is out of its reach is out of anybody's.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from benchmarks.simulated import KNOWN, Seeds, Setting, Sweep, lambdas, load, ours, sweep
from services.planner.simulate.statistics import Estimate, cost_at, dominated

WANTED = {
    "rlhfless-3b-gsm8k": 20.0,
    "rlhfless-3b-gsm8k-512": 0.0,
    "rlhfless-7b": 0.0,
    "long-cot-7b-h100": 20.0,
}
LAMBDAS = (0.3, 0.7, 0.9)
POOLS = (0.0, 0.25, 0.75, 2.0)
SEEDS = 5


def measure() -> Measured:
    """All four settings."""
    margins: list[float] = []
    rows: list[tuple[object, ...]] = []
    for name, wanted in WANTED.items():
        inputs = load(name, tail=None)
        settings = [*lambdas(LAMBDAS), *ours(POOLS), *[Setting(KNOWN, p) for p in POOLS]]
        found = sweep(inputs, settings, seeds=SEEDS)
        for value, point in zip(LAMBDAS, found.points("rlhfless"), strict=True):
            saved = _cheaper(found, "ours", value)
            best = _cheaper(found, "oracle", value)
            margins.append(100 * saved.mean - wanted)
            beaten = dominated(point, found.points("ours"))
            rows.append(
                (name, value, point.time, point.cost, saved.words(), best.mean, wanted, beaten)
            )
        assert not any(dominated(p, found.points("rlhfless")) for p in found.points("ours")), name
    return Measured(
        min(margins),
        ("scenario", "lambda", "time", "cost", "ours cheaper", "oracle", "wanted %", "dominated"),
        rows,
    )


def _cheaper(found: Sweep, mine: str, value: float) -> Estimate:
    at = LAMBDAS.index(value)

    def saved(seeds: Seeds) -> float:
        point = found.points("rlhfless", seeds)[at]
        return 1 - cost_at(found.points(mine, seeds), point.time) / point.cost

    return found.interval(saved)
