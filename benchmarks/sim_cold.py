"""Cold starts that everybody sees: ours against the best static pool in hindsight.

Starts of 10 s and 60 s that cannot be hidden. The static pools are all sizes, held or released
after each step (then they start again). Judged is the largest ratio of worth over all epochs: dollars
of all roles and the value of time, ours over the best of them. Beside it stands the figure after the
first epoch, before which no prompt has a history.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from benchmarks.simulated import Seeds, Setting, Sweep, load, ours, static_counts, sweep
from services.planner.simulate.policies import STATIC
from services.planner.simulate.scenario import Start
from services.planner.simulate.statistics import Estimate

SECONDS = (10.0, 60.0)
POOLS = (0.25, 1.25)
"""The learner alone, and the pool's price beside it."""
WORTH, WORTH_LATER = 3, 7


def measure() -> Measured:
    """Each start and value of time."""
    rows: list[tuple[object, ...]] = []
    ratios: list[float] = []
    for seconds in SECONDS:
        base = load("rlhfless-3b-gsm8k")
        start = Start(seconds=seconds, hidden=False)
        actors = base.scenario.actors.model_copy(update={"start": start})
        inputs = load("rlhfless-3b-gsm8k", actors=actors)
        for pools in POOLS:
            static = [
                Setting(one, pools, setting.size)
                for setting in static_counts(inputs)
                for one in (setting.policy, STATIC)
            ]
            found = sweep(inputs, [*static, *ours([pools])], seeds=10)
            means = found.shares[: len(static), :, WORTH_LATER].mean(axis=1)
            best = int(means.argmin())
            chosen = static[best]
            whole, later = (_ratio(found, best, figure) for figure in (WORTH, WORTH_LATER))
            name = f"{chosen.policy.name} {chosen.size}"
            rows.append((seconds, pools, name, whole.words(), later.words()))
            ratios.append(whole.mean)
    return Measured(
        max(ratios),
        ("start s", "value of time, pools", "best static", "ours, all", "ours, later"),
        rows,
    )


def _ratio(found: Sweep, best: int, figure: int) -> Estimate:
    def ratio(seeds: Seeds) -> float:
        mine, other = found.shares[[-1, best]][:, seeds, figure].mean(axis=1)
        return float(mine / other)

    return found.interval(ratio)
