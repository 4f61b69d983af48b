"""Seeds over several processes (shell)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from services.planner.simulate.policies import Policy
from services.planner.simulate.results import Inputs, Results, Seed, policies_of, run_seed


def run_all(
    inputs: Inputs,
    *,
    seeds: int,
    workers: int = 2,
    policies: Sequence[Policy] | None = None,
    hour_worth: float | None = None,
    ended: Callable[[int], None] = lambda _: None,
) -> Results:
    """Seeds from the scenario's first one on, in order whoever was faster.

    `ended` is told how many are there, after each.
    """
    first = inputs.scenario.first_seed
    numbers = range(first, first + seeds)
    run = partial(_run, inputs, tuple(policies or policies_of(inputs.scenario)), hour_worth)
    if workers == 1 or seeds == 1:
        return Results(inputs.scenario, _counted(map(run, numbers), ended))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, seeds), mp_context=context) as pool:
        return Results(inputs.scenario, _counted(pool.map(run, numbers), ended))


def _counted(found: Iterable[Seed], ended: Callable[[int], None]) -> list[Seed]:
    seeds: list[Seed] = []
    for seed in found:
        seeds.append(seed)
        ended(len(seeds))
    return seeds


def _run(inputs: Inputs, policies: Sequence[Policy], hour_worth: float | None, seed: int) -> Seed:
    return run_seed(inputs, seed, policies, hour_worth)
