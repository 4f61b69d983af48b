"""All policies on all seeds, summed up: figures with intervals, ratios to static, savings (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from services.planner.core.planning.profile import Profile
from services.planner.simulate.accounts import Figures
from services.planner.simulate.answers import Order, Row, blocks_of, make_trace
from services.planner.simulate.oracle import Bound, bound
from services.planner.simulate.play import Case, play
from services.planner.simulate.policies import LADDER, OURS, RLHFLESS, STATIC, TAILED, Policy, named
from services.planner.simulate.prefill import Prefill, prefill
from services.planner.simulate.scenario import Scenario
from services.planner.simulate.site import Site, make_site
from services.planner.simulate.statistics import Estimate, Point, estimate, ratios

Steps = Sequence[Figures]
ORACLE = "oracle"
FRONT_SEEDS = 4
WORTHS = (0.0, 0.25, 0.75, 1.5, 3.0, 8.0)
"""Values of an hour of step time, the held roles among them, at which ours is drawn: multiples of
the pool's price."""
LAMBDAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
SHARES = (0.25, 0.375, 0.5, 0.625, 0.75, 1.0)


@dataclass(frozen=True)
class Seed:
    """Of one seed: the steps of each policy, and the bounds of each step."""

    seed: int
    steps: Mapping[str, Steps]
    bounds: Sequence[Bound]


class Inputs(NamedTuple):
    """What a shell has read. `rows`: of the length file; `profile`: of the profile file."""

    scenario: Scenario
    rows: Sequence[Row] = ()
    profile: Profile | None = None


def make_case(inputs: Inputs, seed: int, site: Site | None = None) -> Case:
    """The answers of one seed on the scenario's actors."""
    scenario = inputs.scenario
    trace = make_trace(scenario.lengths, scenario.work, inputs.rows, seed)
    blocks = blocks_of(trace, inputs.rows)
    place = site or _site(inputs)
    return Case(place, trace, Order(trace, scenario.work, seed), seed, blocks)


def _site(inputs: Inputs) -> Site:
    return make_site(inputs.scenario, inputs.profile)


def run_seed(
    inputs: Inputs, seed: int, policies: Sequence[Policy], hour_worth: float | None = None
) -> Seed:
    """Every policy on the same answers; the oracle is in hindsight the best of the on-policy."""
    case = make_case(inputs, seed, replace(_site(inputs), hour_worth=hour_worth))
    steps: dict[str, Steps] = {policy.name: play(case, policy) for policy in policies}
    if ORACLE in steps:
        fair = [p.name for p in policies if comparable(p)]
        steps[ORACLE] = hindsight([steps[name] for name in fair])
    return Seed(seed, steps, [bound(case.site, batch) for batch in case.order])


def comparable(policy: Policy) -> bool:
    """Whether it decodes the same samples to the end on the same kind of roles."""
    return (
        policy.on_policy
        and policy.unfinished == "none"
        and policy.shares_gpus == "no"
        and policy.overlaps == "none"
    )


def hindsight(every: Sequence[Steps]) -> list[Figures]:
    """For each step the best of all by worth."""
    return [min(some, key=lambda one: one.worth) for some in zip(*every, strict=True)]


def policies_of(scenario: Scenario) -> list[Policy]:
    """Those that the file names, or all; static is always among them."""
    found = named(scenario.policies, tail=scenario.tail is not None, spot=scenario.spot is not None)
    return found if any(p.name == STATIC.name for p in found) else [STATIC, *found]


def mean(steps: Steps, name: str) -> float:
    """Over steps; NaN where a step has no such figure."""
    values = [getattr(one, name) for one in steps]
    return math.nan if None in values or not values else sum(values) / len(values)


@dataclass(frozen=True)
class Results:
    """Seeds in order; what is asked of them."""

    scenario: Scenario
    seeds: Sequence[Seed]

    @property
    def names(self) -> list[str]:
        """Policies, in order."""
        return list(self.seeds[0].steps)

    def values(self, policy: str, figure: str, *, first: int = 0) -> list[float]:
        """One mean over steps from `first` on per seed."""
        return [mean(seed.steps[policy][first:], figure) for seed in self.seeds]

    def of(self, policy: str, figure: str) -> Estimate:
        """Mean per step."""
        return estimate(self.values(policy, figure))

    def ratio(self, policy: str, figure: str, *, first: int = 0) -> Estimate:
        """To static, seed by seed."""
        mine = self.values(policy, figure, first=first)
        return ratios(mine, self.values(STATIC.name, figure, first=first))

    def first_later_step(self) -> int:
        """The first step after the first epoch."""
        work = self.scenario.work
        return work.prompts // work.prompts_per_step

    def bound_ratio(self, figure: str) -> Estimate:
        """Of the lower bound to static: `seconds` of decoding, or `gpu_seconds`."""
        beside = "decode_seconds" if figure == "seconds" else "decoding"
        lows = [_mean([getattr(b, figure) for b in seed.bounds]) for seed in self.seeds]
        return ratios(lows, self.values(STATIC.name, beside))

    def oracle_share(self, policy: str, figure: str = "worth") -> Estimate:
        """Of the oracle's improvement on static after the first epoch."""
        first = self.first_later_step()
        static, best, mine = (
            self.values(name, figure, first=first) for name in (STATIC.name, ORACLE, policy)
        )
        shares = [
            (s - m) / (s - b) if s > b else 1.0 for s, b, m in zip(static, best, mine, strict=True)
        ]
        return estimate(shares)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class Saving(NamedTuple):
    """GPU-seconds per step that one cause saves, beside those before it; share of static's."""

    cause: str
    gpu_seconds: float
    share: float


def savings(inputs: Inputs, seeds: Sequence[int]) -> list[Saving]:
    """From static to ours, cause by cause, in GPU-seconds of actors in the whole step."""
    cases = [make_case(inputs, seed) for seed in seeds]
    held = [
        (cause, _mean([mean(play(case, policy), "held") for case in cases]))
        for cause, policy in LADDER
    ]
    whole = held[0][1]
    pairs = pairwise(held)
    return [
        Saving(cause, before - after, (before - after) / whole)
        for (_, before), (cause, after) in pairs
    ]


def fronts(inputs: Inputs, seeds: Sequence[int]) -> dict[str, list[Point]]:
    """Time and cost of decoding over each policy's own parameter, as shares of static's."""
    cases = [make_case(inputs, seed) for seed in seeds]
    static = [play(case, STATIC) for case in cases]

    def point(policy: Policy, site: Site, setting: str) -> Point:
        found = [play(replace(case, site=site), policy) for case in cases]
        return Point(
            _paired(found, static, "decode_seconds"), _paired(found, static, cost), setting
        )

    site = cases[0].site
    cost = "decode_dollars" if site.scenario.priced else "decoding"
    release = replace(STATIC, name="static-release", released="finish")
    counts = sorted({max(round(site.most * share), 1) for share in SHARES})
    found = {
        "static-release": [point(release, site.with_count(n), f"{n} actors") for n in counts],
        "rlhfless": [point(replace(RLHFLESS, weight=w), site, f"lambda {w:g}") for w in LAMBDAS],
    }
    for policy in (OURS, *([TAILED] if site.scenario.tail else [])):
        found[policy.name] = [
            point(policy, valued(site, w), f"time worth {w:g} pools") for w in WORTHS
        ]
    return found


def valued(site: Site, pools: float) -> Site:
    """The same where an hour of step time is worth so many times the pool's price in all."""
    pool = (site.per_second(0, STATIC) or 1.0 / 3600) * site.most * 3600.0
    held = (site.held_per_second or 0.0) * 3600.0
    return replace(site, hour_worth=pools * pool - held)


def _paired(found: Sequence[Steps], beside: Sequence[Steps], figure: str) -> float:
    each = [mean(a, figure) / mean(b, figure) for a, b in zip(found, beside, strict=True)]
    return _mean(each)


def shared_prompts(inputs: Inputs, case: Case) -> Prefill:
    """Prompt tokens of the first step by how beginnings are shared, under static's layout."""
    work, site = inputs.scenario.work, case.site
    batch = case.order.batch(0)
    first = np.unique(batch.group, return_index=True)[1]
    prompts = batch.prompts[first].tolist()
    rows = [Row(int(case.trace.prompt_tokens[p]), 1, case.blocks[p]) for p in prompts]
    actors = [at % site.most for at in range(len(rows))]
    return prefill(rows, actors, work.group_size, float(site.profiles[0].file.kv_tokens))
