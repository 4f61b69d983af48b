"""How much of the oracle's improvement on static ours has, on every shipped scenario.

In dollars of all roles and the value of time, after the first epoch, for values of time from the
held roles alone to the price of the pool beside them. The oracle knows every length and is, step by
step, the best of all on-policy plans in hindsight. Ours is the one with all the actors that a
scenario has. Judged is the smallest share, in percent.
"""

from __future__ import annotations

from benchmarks.harness import Measured
from benchmarks.simulated import FINAL, SCENARIOS, load
from services.planner.simulate.many import run_all
from services.planner.simulate.policies import STATIC, named
from services.planner.simulate.results import ORACLE, Inputs, Results
from services.planner.simulate.site import make_site

VALUES = (0.0, 1.0)
SEEDS = 3
NAMES = ("static", "static-release", "rlhfless", "tailsieve", "ours", ORACLE)


def measure() -> Measured:
    """Every scenario and value."""
    rows: list[tuple[object, ...]] = []
    for path in sorted(SCENARIOS.glob("*.yaml")):
        for value in VALUES:
            inputs = load(path.stem, first_seed=FINAL)
            found = _run(inputs, value)
            mine = found.names[-2]
            share = found.oracle_share(mine)
            rows.append((path.stem, value, mine, share.words(), share.mean * 100))
    columns = ("scenario", "value of time, pools", "ours", "share of the oracle's gain", "%")
    return Measured(min(float(row[-1]) for row in rows), columns, rows)  # type: ignore[arg-type]


def _run(inputs: Inputs, value: float) -> Results:
    scenario = inputs.scenario
    best = "ours-tail" if scenario.tail else "ours-spot" if scenario.spot else "ours"
    names = dict.fromkeys([*NAMES[:-1], best, ORACLE])
    policies = named(list(names), tail=scenario.tail is not None, spot=scenario.spot is not None)
    site = make_site(scenario, inputs.profile)
    pool = (site.per_second(0, STATIC) or 0.0) * site.most * 3600.0
    return run_all(inputs, seeds=SEEDS, policies=policies, hour_worth=value * pool)
