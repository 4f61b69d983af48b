"""What each mechanism is worth: the same steps with one after the other switched on.

Two parts, one table. `emulated`: 16 L40S-like actors with GSM8K-like lengths, through the real
broker, planner, journals and scorer. `real`: the torch engine on up to four actors, few steps.
Every variant decodes the same prompts with the same noise, so the same answers come of them, and
steps are compared in pairs. Judged is the emulated part: our actor-seconds in percent of a static
pool of 16 that is held to the end; none, if a step takes more than 1.05 of its time, or if a
static pool of another size or RLHFless as published is at least as fast and as cheap. Static
pools are even credited with releasing each actor the moment it has finished, and with having it
back at once for nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.ablation import emulated, real
from benchmarks.ablation.figures import Outcome, dominates, row
from benchmarks.ablation.runs import run_all
from benchmarks.ablation.variants import OURS, RAW, RLHFLESS, STATIC, SWEEP
from benchmarks.harness import Measured
from benchmarks.stack import running
from ebbtide.demo import model

MOST_TIME = 1.05
COLUMNS = (
    "part",
    "variant",
    "step s",
    "decode s",
    "actor-s",
    "busy actor-s",
    "actors",
    "time",
    "cost",
    "prompt tokens",
    "moved",
)


def measure() -> Measured:
    """Run both parts, the emulated one first."""
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        folder = Path(scratch)
        model.save(folder / "model", seed=0)
        found = run_all(stack, emulated.setting(folder), [RAW, STATIC, *OURS, *RLHFLESS, *SWEEP])
        rows += table_of("emulated", found)
        small = run_all(stack, real.setting(folder), [RAW, STATIC, *OURS, *RLHFLESS])
        rows += table_of("real", small)
    return Measured(judged(found), COLUMNS, rows)


def table_of(part: str, found: Mapping[str, Outcome]) -> list[Sequence[object]]:
    """One row per variant, against the static pool that is held."""
    return [row(part, name, outcome, found[STATIC.name]) for name, outcome in found.items()]


def judged(found: Mapping[str, Outcome]) -> float:
    """Our actor-seconds in percent of static hold; NaN if we are too slow, or dominated."""
    ours, static = found[OURS[-1].name], found[STATIC.name]
    others = [found[v.name].released() for v in (STATIC, *SWEEP)] + [found[RLHFLESS[-1].name]]
    if ours.seconds / static.seconds > MOST_TIME or any(dominates(o, ours) for o in others):
        return math.nan
    return 100 * ours.actor_seconds / static.actor_seconds
