"""A scenario that plays in milliseconds."""

from __future__ import annotations

from typing import Any

from services.planner.simulate.play import Case
from services.planner.simulate.results import Inputs, make_case
from services.planner.simulate.scenario import Scenario, read_scenario

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "model": "qwen2.5-3b",
    "work": {"prompts": 16, "promptsPerStep": 8, "groupSize": 3, "limit": 2048, "epochs": 3},
    "lengths": {"median": 285, "p90": 488},
    "actors": {"gpu": "l40s", "count": 4, "perGpuHour": 3.77, "start": {"seconds": 1.0}},
    "tail": {"gpu": "l40s", "tensorParallel": 2, "perGpuHour": 3.77, "most": 1},
    "held": [{"role": "learner", "gpus": 2, "perGpuHour": 3.77}],
    "phases": {"sync": 1, "score": 1, "learn": 8},
    "spot": {"perGpuHour": 1.9, "interruptionsPerHour": 60, "notice": 30},
    "seeds": 2,
}


def scenario(**changes: Any) -> Scenario:
    return read_scenario({**DOCUMENT, **changes})


def case(seed: int = 0, **changes: Any) -> Case:
    return make_case(Inputs(scenario(**changes)), seed)
