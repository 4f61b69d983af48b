"""What an experiment tracker is told of a job, and what one must be able to take (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from ebbtide.reports import StepReport

KINDS = ("tensorboard", "mlflow", "wandb")


class TrackedRun(msgspec.Struct, frozen=True):
    """The job that is tracked."""

    name: str
    uid: str
    spec: Mapping[str, Any]


class Tracker(Protocol):
    """Takes a job's steps in order; a step that a restart undid comes a second time."""

    def step(self, number: int, at: float, figures: Mapping[str, float]) -> None:
        """Figures of one committed step; `at`: Unix seconds of its end."""
        ...

    def end(self, state: str) -> None:
        """The job has ended in `state`: write all that waits."""
        ...


def ended_at(report: StepReport) -> float:
    """Unix seconds of the step's commit."""
    return report.started_at - report.phases.plan + report.seconds


def figures(report: StepReport) -> dict[str, float]:
    """A step's figures, by TRL's names where TRL has the quantity."""
    return dict(_all(report))


_STATS = {
    "clip_fraction_low": "clip_ratio/low_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "value_loss": "loss/value_avg",
}
_PLAIN = ("loss", "kl", "entropy", "grad_norm", "learning_rate")


def _all(report: StepReport) -> Iterator[tuple[str, float]]:
    yield "step_time", report.seconds
    for phase, seconds in report.phases.model_dump().items():
        yield f"phase_seconds/{phase}", seconds
    for outcome in ("expected", "valued", "invalid", "abandoned"):
        yield f"samples/{outcome}", getattr(report.samples, outcome)
    yield from _rewards(report)
    yield from _lengths(report)
    stats = report.learner.stats if report.learner else {}
    for name, value in stats.items():
        yield _STATS.get(name) or (name if name in _PLAIN else f"learner/{name}"), value
    if report.cost.total is not None:
        yield f"cost/{report.cost.currency}", report.cost.total


def _rewards(report: StepReport) -> Iterator[tuple[str, float]]:
    if report.rewards:
        yield "reward", report.rewards.mean
        yield "reward_std", report.rewards.std
        for name, mean in report.rewards.components.items():
            yield f"rewards/{name}/mean", mean
    if report.groups.trained:
        yield "frac_reward_zero_std", report.groups.zero_variance / report.groups.trained
    if report.evaluation:
        yield "eval_reward", report.evaluation.mean
        yield "eval_pass_at_k", report.evaluation.pass_at_k


def _lengths(report: StepReport) -> Iterator[tuple[str, float]]:
    if accepted := report.samples.accepted:
        yield "completions/mean_length", report.tokens.mean
        yield "completions/max_length", report.tokens.longest
        yield "completions/clipped_ratio", report.tokens.truncated / accepted
