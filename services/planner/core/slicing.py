"""A step's training samples by task, length, versions, sign of the reward and age (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ebbtide.figures import SliceReport
from ebbtide.slices import (
    DIGITS,
    Seen,
    age,
    bucket,
    figures_of,
    rarest_as_other,
    seen_of,
    sign,
)
from ebbtide.wire import Accepted
from services.planner.core.samples import OpenStep

MOST = {"task": 12, "length": 6, "prompts": 1, "reward": 4, "sign": 3, "age": 4}
"""Values of each kind that are named; with these a job's figures stay few."""


def slices(step: OpenStep, *, threshold: float) -> tuple[SliceReport, ...]:
    """Figures by each kind of slice, in order; samples that are not accepted are in none."""
    found: list[SliceReport] = []
    prompts = dict(step.plan.digests).get("dataset", "")[:DIGITS]
    rows = [
        (_places(step, sample, accepted, prompts), seen_of(accepted, step.scores[sample]))
        for sample, accepted in enumerate(step.rollouts)
        if accepted is not None and step.group(sample).purpose == "train"
    ]
    for by, most in MOST.items():
        names = rarest_as_other((places[by] for places, _ in rows), most)
        groups: defaultdict[str, list[Seen]] = defaultdict(list)
        for places, seen in rows:
            groups[names[places[by]]].append(seen)
        found += [
            SliceReport(by=by, value=value, **figures_of(seen, threshold=threshold).model_dump())
            for value, seen in sorted(groups.items())
            if value
        ]
    return tuple(found)


def _places(step: OpenStep, sample: int, accepted: Accepted, prompts: str) -> Mapping[str, str]:
    """Where a sample belongs by each kind; an empty name: it is not known."""
    scored = step.scores[sample]
    reward = seen_of(accepted, scored).reward
    return {
        "task": step.group(sample).task,
        "length": bucket(accepted.n_tokens),
        "prompts": prompts,
        "reward": scored.scorer_digest[:DIGITS] if scored else "",
        "sign": sign(reward),
        "age": age(accepted.policy.n, step.plan.policy.n),
    }
