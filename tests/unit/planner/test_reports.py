"""A job's report sums up its steps."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.reports import (
    CostReport,
    EvalStats,
    PhaseSeconds,
    SampleCounts,
    StepReport,
    summarise,
)


def a_step(n: int, **changes: Any) -> StepReport:
    fields: dict[str, Any] = {
        "job_uid": "j",
        "step": n,
        "attempt": 1,
        "epoch": 1,
        "policy": n,
        "policy_digest": "d",
        "next_policy": n + 1,
        "next_policy_digest": "e",
        "seconds": 2.0,
        "samples": SampleCounts(expected=4, accepted=4, valued=3, abandoned=1),
    }
    return StepReport(**{**fields, **changes})


def an_eval(mean: float) -> EvalStats:
    return EvalStats(mean=mean, pass_at_k=mean, k=1, prompts=2, samples=2)


def test_no_step_gives_an_empty_report() -> None:
    assert summarise([]).steps == 0


def test_counts_and_seconds_are_summed() -> None:
    job = summarise([a_step(0), a_step(1, phases=PhaseSeconds(decode=1.5))])
    assert (job.samples_expected, job.samples_abandoned, job.seconds) == (8, 2, 4.0)
    assert job.phases.decode == 1.5


@pytest.mark.parametrize(("valued", "lost", "doubled"), [(3, 0, 0), (2, 1, 0), (4, 0, 1)])
def test_a_sample_without_outcome_is_lost_and_one_too_many_doubled(
    valued: int, lost: int, doubled: int
) -> None:
    samples = SampleCounts(expected=4, valued=valued, abandoned=1)
    job = summarise([a_step(0, samples=samples)])
    assert (job.samples_lost, job.samples_doubled) == (lost, doubled)


def test_first_and_last_evaluation_are_named() -> None:
    steps = [a_step(0, evaluation=an_eval(0.2)), a_step(1), a_step(2, evaluation=an_eval(0.9))]
    job = summarise(steps)
    assert (job.eval_reward_first, job.eval_reward_last) == (0.2, 0.9)


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    known = CostReport(total=1.0)
    assert summarise([a_step(0, cost=known), a_step(1, cost=known)]).cost == 2.0
    assert summarise([a_step(0, cost=known), a_step(1)]).cost is None


def test_a_report_survives_json() -> None:
    report = a_step(3, evaluation=an_eval(0.5))
    assert StepReport.model_validate_json(report.model_dump_json(by_alias=True)) == report
