"""Held-out results of a closed step (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ebbtide.wire import Value
from services.planner.core.samples import OpenStep


class EvalResult(msgspec.Struct, frozen=True):
    """Of the policy after `step` updates. `pass_at_k`: share of prompts with a passing sample."""

    step: int
    mean: float
    pass_at_k: float
    k: int
    prompts: int
    samples: int


def best_of(evals: Sequence[EvalResult]) -> EvalResult | None:
    """The highest mean; of equal ones the earliest."""
    return max(evals, key=lambda found: (found.mean, -found.step), default=None)


def totals(step: OpenStep, group: int) -> list[float]:
    """Rewards of a group's valued samples, in order."""
    scores = [step.scores[sample] for sample in step.in_group(group)]
    return [s.score.total for s in scores if s is not None and isinstance(s.score, Value)]


def evaluate(step: OpenStep, threshold: float) -> EvalResult | None:
    """Mean reward and pass@k over the eval groups; None where no sample was valued.

    A prompt without any valued sample is left out: infrastructure is not the policy's fault.
    """
    groups = [g for g, plan in enumerate(step.plan.groups) if plan.purpose == "eval"]
    valued = [found for found in (totals(step, g) for g in groups) if found]
    if not valued:
        return None
    samples = [total for found in valued for total in found]
    return EvalResult(
        step=step.plan.step,
        mean=sum(samples) / len(samples),
        pass_at_k=sum(max(found) >= threshold for found in valued) / len(valued),
        k=max(step.plan.groups[g].size for g in groups),
        prompts=len(valued),
        samples=len(samples),
    )
