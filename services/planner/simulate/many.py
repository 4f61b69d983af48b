"""Seeds over several processes (shell)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
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
) -> Results:
    """Seeds from the scenario's first one on, in order whoever was faster."""
    first = inputs.scenario.first_seed
    numbers = range(first, first + seeds)
    run = partial(_run, inputs, tuple(policies or policies_of(inputs.scenario)), hour_worth)
    if workers == 1 or seeds == 1:
        return Results(inputs.scenario, [run(seed) for seed in numbers])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, seeds), mp_context=context) as pool:
        return Results(inputs.scenario, list(pool.map(run, numbers)))


def _run(inputs: Inputs, policies: Sequence[Policy], hour_worth: float | None, seed: int) -> Seed:
    return run_seed(inputs, seed, policies, hour_worth)
