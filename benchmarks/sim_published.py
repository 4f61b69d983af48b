"""RLHFless as published, part by part, beside what its paper says.

Judged is the saving in GPU-seconds of decoding against static actors, in percent (published: up to
44.8 for GRPO, 3B, GSM8K). The rows: its parts switched on one after the other (DP dedup, PA
assignment, AS scaling), tau, lambda, a weak predictor and batch sizes.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Measured
from benchmarks.simulated import RELEASE, Setting, Sweep, load, sweep
from services.planner.simulate.policies import RLHFLESS, STATIC
from services.planner.simulate.results import Inputs

SEEDS = 10
NO_CACHE = replace(STATIC, name="static, no caches", cache="none")
RAW = replace(RELEASE, name="raw: released, no caches", cache="none")
DP = replace(RAW, name="+ DP", cache="service")
PA = replace(DP, name="+ PA", belief="ewma", rule="equal-count", moves="tau")
AS = replace(RLHFLESS, name="+ AS: as published")
TAUS = (0.3, 0.5, 0.7, 0.9)
SIZES = {128: 4, 256: 8, 512: 16, 1024: 32}
"""Prompts a step, and the seconds that learning takes."""


def measure() -> Measured:
    """In the setting of 256 x 3, then over batch sizes."""
    weak = replace(RLHFLESS, name="weak predictor", belief="weak")
    taus = [replace(RLHFLESS, name=f"tau {tau:g}", tau=tau) for tau in TAUS]
    parts = [STATIC, NO_CACHE, RAW, DP, PA, AS, weak, *taus]
    found = sweep(load("rlhfless-3b-gsm8k"), [Setting(one) for one in parts], SEEDS)
    rows = [_row(found, one.name) for one in parts]
    for prompts, learn in SIZES.items():
        sized = sweep(_sized(prompts, learn), [Setting(AS)], SEEDS)
        rows.append((f"{prompts} prompts: as published", *_row(sized, AS.name)[1:]))
    saved = 100 * (1 - found.points(AS.name)[0].cost)
    return Measured(saved, ("policy", "time, of static", "cost", "all roles"), rows)


def _sized(prompts: int, learn: float) -> Inputs:
    base = load("rlhfless-3b-gsm8k").scenario
    work = base.work.model_copy(update={"prompts": 4 * prompts, "prompts_per_step": prompts})
    phases = base.phases.model_copy(update={"learn": float(learn)})
    return load("rlhfless-3b-gsm8k", work=work, phases=phases)


def _row(found: Sweep, name: str) -> tuple[object, ...]:
    at = next(n for n, one in enumerate(found.settings) if one.policy.name == name)

    def share(figure: int) -> str:
        return found.interval(lambda seeds: float(found.shares[at][seeds, figure].mean())).words()

    return (name, share(0), share(1), share(2))
