"""RLHFless's setting against static actors: cost at equal time, as fronts over the value of time.

Generation alone, as everywhere where static actors are compared: dollars of actors while a step
decodes, warm starts included. Judged is the worst of the first five rows, over all epochs: found
over its limit. Below them: without the first epoch, in which no prompt has a history, and the
oracle's cost.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from benchmarks.simulated import (
    CLAIMS,
    KNOWN_TAIL,
    Claim,
    Setting,
    Sweep,
    load,
    ours,
    static_counts,
    sweep,
    tailed,
    worst,
)
from services.planner.simulate.results import Inputs
from services.planner.simulate.statistics import Estimate

POOLS = (1.5, 4.0, 10.0, 25.0)
TAILED = (0.4, 0.8, 1.6, 4.0)


def measure() -> Measured:
    """Both batch sizes on the final seeds."""
    small = sweep(*_settings("rlhfless-3b-gsm8k", tails=True))
    large = sweep(*_settings("rlhfless-3b-gsm8k-512", tails=False))
    claims = [
        Claim("256 x 3: cost at 1.03 of static's time", small.at_time(["ours"], 1.03), 0.35),
        Claim("512 x 3: cost at 1.05 of static's time", large.at_time(["ours"], 1.05), 0.42),
        Claim("256 x 3, tail actors: at 0.95", small.at_time(["ours", "ours-tail"], 0.95), 0.30),
        Claim("256 x 3: of the best static N at 1.03", _of_static(small, 1.03), 0.75),
        Claim("512 x 3: of the best static N at 1.05", _of_static(large, 1.05), 0.85),
    ]
    later = [
        Claim("256 x 3 after the first epoch: at 1.03", _later(small, "ours", 1.03), 0.35),
        Claim("512 x 3 after the first epoch: at 1.05", _later(large, "ours", 1.05), 0.42),
        Claim(
            "256 x 3 after the first epoch, tail: at 0.95", _later(small, "ours-tail", 0.95), 0.30
        ),
        Claim("256 x 3, oracle with tail actors: at 0.95", small.at_time(["oracle"], 0.95), 0.30),
    ]
    rows = [claim.row() for claim in (*claims, *later)]
    rows += [*_front(small, "256 x 3"), *_front(large, "512 x 3")]
    return Measured(worst(claims), CLAIMS, rows)


def _settings(name: str, *, tails: bool) -> tuple[Inputs, list[Setting]]:
    inputs = load(name)
    return inputs, [*static_counts(inputs), *ours(POOLS), *(_tails() if tails else [])]


def _tails() -> list[Setting]:
    return [*tailed(TAILED), *[Setting(KNOWN_TAIL, pools) for pools in TAILED]]


def _later(found: Sweep, name: str, time: float) -> Estimate:
    return found.at_time([name], time, later=True)


def _of_static(found: Sweep, time: float) -> Estimate:
    saved = found.cheaper("ours", "static-release", time)
    return Estimate(1 - saved.mean, 1 - saved.high, 1 - saved.low)


def _front(found: Sweep, what: str) -> list[tuple[object, ...]]:
    families = dict.fromkeys(one.policy.name for one in found.settings)
    rows: list[tuple[object, ...]] = [
        (f"{what}: {name} at {point.time:.3f}", f"{point.cost:.3f}", "", "")
        for name in families
        for point in found.points(name)
    ]
    low = float(found.bounds.mean())
    return [*rows, (f"{what}: bound on time, the longest answer alone", f"{low:.3f}", "", "")]
