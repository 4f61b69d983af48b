"""What the simulation benchmarks share: settings of policies on final seeds, fronts, intervals.

Seeds from `FINAL` on were never looked at while anything was tuned; figures are shares of static's.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from services.planner.simulate.__main__ import read_inputs
from services.planner.simulate.accounts import Figures
from services.planner.simulate.oracle import bound
from services.planner.simulate.play import play
from services.planner.simulate.policies import (
    OURS,
    POLICIES,
    RLHFLESS,
    STATIC,
    TAILED,
    Policy,
)
from services.planner.simulate.results import LAMBDAS, Inputs, make_case, mean, valued
from services.planner.simulate.site import Site
from services.planner.simulate.statistics import Estimate, Point, cost_at

Floats = npt.NDArray[np.floating[Any]]
Seeds = npt.NDArray[np.integer[Any]] | slice

ALL, LATER = (0, 1), (4, 5)
"""Figures of a `Sweep`: time and cost, over all steps, and after the first epoch."""

FINAL = 5000
SEEDS = 20
WORKERS = 2
SCENARIOS = Path(__file__).resolve().parents[1] / "deploy" / "scenarios"
RELEASE = replace(STATIC, name="static-release", released="finish")
KNOWN = next(policy for policy in POLICIES if policy.name == "oracle")
"""Ours with every length known, one plan a step."""
KNOWN_TAIL = replace(KNOWN, tail=True)
_DRAWS = 400


class Setting(NamedTuple):
    """A policy with its parameter: `pools`, the value of time; `size` of the pool."""

    policy: Policy
    pools: float | None = None
    size: int | None = None

    def site(self, site: Site) -> Site:
        """The scenario's actors under this setting."""
        valued_site = site if self.pools is None else valued(site, self.pools)
        return valued_site if self.size is None else valued_site.with_count(self.size)


def load(name: str, **changes: Any) -> Inputs:
    """A shipped scenario, with some of its fields changed."""
    inputs = read_inputs(SCENARIOS / f"{name}.yaml")
    return inputs._replace(scenario=inputs.scenario.model_copy(update=changes))


def static_counts(inputs: Inputs) -> list[Setting]:
    """Every size of a static pool that releases on finish (a selection where there are many)."""
    most = inputs.scenario.actors.count
    step = max(most // 16, 1)
    return [Setting(RELEASE, size=n) for n in range(step, most + 1, step)]


def lambdas(values: Sequence[float] = LAMBDAS) -> list[Setting]:
    """RLHFless over its own parameter."""
    return [Setting(replace(RLHFLESS, weight=value)) for value in values]


def ours(pools: Sequence[float], policy: Policy = OURS) -> list[Setting]:
    """Ours over the value of time."""
    return [Setting(policy, value) for value in pools]


def tailed(pools: Sequence[float]) -> list[Setting]:
    """Ours with tail actors."""
    return ours(pools, TAILED)


@dataclass(frozen=True)
class Sweep:
    """`shares` (settings, seeds, figures): of static's on the same seed.

    Figures are means over steps: seconds of decoding, dollars of actors in it, dollars of all
    roles, and these with the value of time; then the same four after the first epoch.
    bounds (seeds,): no policy decodes in less of static's time.
    """

    settings: Sequence[Setting]
    shares: Floats
    bounds: Floats

    def points(
        self, family: str, seeds: Seeds = slice(None), *, later: bool = False
    ) -> list[Point]:
        """(time, cost) of each setting of a policy, means over seeds.

        `later`: of the steps after the first epoch alone.
        """
        rows = [at for at, one in enumerate(self.settings) if one.policy.name == family]
        means = self.shares[rows][:, seeds].mean(axis=1)[:, LATER if later else ALL]
        return [Point(float(time), float(cost)) for time, cost in means]

    def at_time(self, families: Sequence[str], time: float, *, later: bool = False) -> Estimate:
        """Cost of the front of these policies at this share of static's time; by bootstrap."""

        def cost(seeds: Seeds) -> float:
            every = [p for family in families for p in self.points(family, seeds, later=later)]
            return cost_at(every, time)

        return self.interval(cost)

    def cheaper(self, mine: str, other: str, time: float) -> Estimate:
        """1 - cost of one over that of the other, both at this time."""

        def saved(seeds: Seeds) -> float:
            costs = [cost_at(self.points(name, seeds), time) for name in (mine, other)]
            return 1 - costs[0] / costs[1]

        return self.interval(saved)

    def interval(self, figure: Callable[[Seeds], float]) -> Estimate:
        """The figure over all seeds, and 95 % of its values over resampled seeds."""
        n = self.shares.shape[1]
        random = np.random.default_rng(0)
        drawn = [figure(random.integers(0, n, size=(n,))) for _ in range(_DRAWS)]
        low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
        return Estimate(figure(np.arange(n)), float(low), float(high))


def sweep(inputs: Inputs, settings: Sequence[Setting], seeds: int = SEEDS) -> Sweep:
    """Every setting on the same final seeds, two processes."""
    run = partial(_seed, inputs, tuple(settings))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        found = list(pool.map(run, range(FINAL, FINAL + seeds)))
    shares = np.stack([rows for rows, _ in found], axis=1)
    return Sweep(settings, shares, np.asarray([low for _, low in found]))


def _seed(inputs: Inputs, settings: Sequence[Setting], seed: int) -> tuple[Floats, float]:
    case = make_case(inputs, seed)
    static = play(case, STATIC)
    later = case.order.steps // inputs.scenario.work.epochs
    rows = []
    for one in settings:
        site = one.site(case.site)
        mine = play(replace(case, site=site), one.policy)
        rows.append(_means(mine, site.hour, later) / _means(static, site.hour, later))
    lows = [bound(case.site, batch).seconds for batch in case.order]
    return np.stack(rows), float(np.mean(lows)) / mean(static, "decode_seconds")


def _means(steps: Sequence[Figures], hour: float, later: int) -> Floats:
    """The figures of a `Sweep`; an hour of step time is worth so much."""
    return np.asarray([*_parts(steps, hour), *_parts(steps[later:], hour)])


def _parts(steps: Sequence[Figures], hour: float) -> list[float]:
    found = [mean(steps, name) for name in ("decode_seconds", "decode_dollars", "dollars")]
    return [*found, found[-1] + hour * mean(steps, "step_seconds") / 3600.0]


class Claim(NamedTuple):
    """A row of a benchmark: what was found, and what it must be at most."""

    what: str
    found: Estimate
    limit: float

    @property
    def of_limit(self) -> float:
        """Found over limit: 1 or less holds; NaN (nothing found) never does."""
        return self.found.mean / self.limit

    def row(self) -> tuple[object, ...]:
        """For the table."""
        return (
            self.what,
            self.found.words(),
            f"{self.limit:g}",
            "yes" if self.of_limit <= 1 else "NO",
        )


CLAIMS = ("what", "found, 95 % interval", "at most", "holds")


def worst(claims: Sequence[Claim]) -> float:
    """The largest share of a limit; NaN where one found nothing."""
    return float(np.max([claim.of_limit for claim in claims]))
