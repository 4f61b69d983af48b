"""Time that the planner takes to lay out one big step: 65,536 samples on up to 256 actors.

`measure()` runs the whole decision: buckets from the forecast, the cost model, partitions by
dynamic programming, candidates for the number of actors, the assignment of every sample. Judged is
the median CPU time of a run on one core. The process must stay under 500 MB.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import Measured
from ebbtide.profiles import ProfileFile
from services.planner.core.planning.actor_count import Plan, plan
from services.planner.core.planning.demand import from_forecast
from services.planner.core.planning.objective import Terms
from services.planner.core.planning.pool import make_pool
from services.planner.core.planning.profile import Profile, make_profile
from services.planner.core.planning.record import ValueOfTime
from services.planner.core.planning.rollout_time import rollout_time
from services.planner.core.prediction.forecast import Forecast, log_normal

SAMPLES, ACTORS, SLOTS, LIMIT, RUNS = 65_536, 256, 512, 2048, 15
MEMORY_MB = 500


def measure() -> Measured:
    """Decide `RUNS` times; each step has other lengths."""
    profile = _profile()
    rows: list[Sequence[object]] = []
    seconds: list[float] = []
    for seed in range(RUNS):
        forecast = _forecast(seed)
        begin = time.process_time()
        decided = _decide(forecast, profile)
        seconds.append(time.process_time() - begin)
        rows.append((seed, seconds[-1] * 1e3, decided.decision.actors, _all_placed(decided)))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert used <= MEMORY_MB, f"{used:.0f} MB"
    rows.append(("peak memory, MB", used, "", ""))
    return Measured(
        statistics.median(seconds) * 1e3, ("run", "CPU ms", "actors", "samples placed"), rows
    )


def _decide(forecast: Forecast, profile: Profile) -> Plan:
    demand = from_forecast(forecast, limit=LIMIT)
    model = rollout_time(profile, demand, slots=SLOTS, prompt_tokens=100)
    pool = make_pool(minimum=1, maximum=ACTORS, serving=64, profile=profile, now=0.0)
    terms = Terms(ValueOfTime(), actor_per_hour=3.77, held_per_hour=8 * 3.77)
    return plan(demand=demand, time=model, pool=pool, terms=terms)


def _all_placed(decided: Plan) -> int:
    assert decided.assignment is not None
    placed = int(np.bincount(decided.assignment.actor_of).sum())
    assert placed == SAMPLES, placed
    return placed


def _forecast(seed: int) -> Forecast:
    """GSM8K-like: most of the variance is the prompt's and known, a quarter is not."""
    middles = np.log(285) + np.random.default_rng(seed).normal(0.0, 0.36, SAMPLES)
    return log_normal(middles, np.full(SAMPLES, 0.21), LIMIT)


def _profile() -> Profile:
    """About a 3B model on an L40S: 6 GB of weights, flat to some 100 samples."""
    batches, contexts = (1, 8, 32, 64, 128, 256, 512), (0, 16_384, 262_144)
    seconds = tuple(tuple(max(0.011, 8e-5 * b) + 5e-8 * c for c in contexts) for b in batches)
    return make_profile(
        ProfileFile(
            version=1,
            engine="none",
            model="3B",
            gpu="L40S",
            tensor_parallel=1,
            batches=batches,
            contexts=contexts,
            seconds=seconds,
            prefill_seconds_per_token=34e-6,
            startup={"weights": 10.0},
            wake_seconds=1.0,
            catch_up_seconds=0.5,
            kv_tokens=900_000,
            kv_bytes_per_token=36_864,
            handover_bytes_per_second=3e9,
        )
    )
