"""The ablation's figures: what is compared with what, and when no figure counts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks import ablation
from benchmarks.ablation import emulated, real
from benchmarks.ablation.figures import Outcome, Step, dominates, interval, row, step_of
from benchmarks.ablation.variants import OURS, RAW, RLHFLESS, STATIC, SWEEP
from ebbtide.reports import CostEntry, CostReport, PhaseSeconds, SampleCounts, StepReport
from ebbtide.spec import RLHFJobSpec

BASE = Step(seconds=10.0, decode=9.0, held=160.0, busy=100.0, actors=16, computed=0, moved=0)


def _outcome(**change: float) -> Outcome:
    return Outcome([replace(BASE, **change)] * 3)  # type: ignore[arg-type]


def _found(ours: Outcome, *, published: Outcome, small: Outcome) -> dict[str, Outcome]:
    found = {v.name: published for v in RLHFLESS} | {v.name: small for v in SWEEP}
    return found | {STATIC.name: _outcome(), RAW.name: _outcome()} | {v.name: ours for v in OURS}


SLOW = _outcome(seconds=12.0, held=50.0, busy=40.0)


def test_the_figure_is_our_share_of_what_static_hold_costs() -> None:
    found = _found(_outcome(held=64.0), published=SLOW, small=SLOW)
    assert ablation.judged(found) == pytest.approx(40.0)


def test_there_is_none_where_our_steps_take_too_long() -> None:
    found = _found(_outcome(seconds=10.6, held=64.0), published=SLOW, small=SLOW)
    assert math.isnan(ablation.judged(found))


def test_there_is_none_where_the_published_rule_is_no_worse() -> None:
    found = _found(_outcome(held=64.0), published=_outcome(held=63.0), small=SLOW)
    assert math.isnan(ablation.judged(found))


def test_a_smaller_static_pool_is_credited_with_free_release() -> None:
    found = _found(_outcome(held=64.0), published=SLOW, small=_outcome(held=160.0, busy=60.0))
    assert math.isnan(ablation.judged(found))


def test_to_be_as_good_in_both_is_to_dominate() -> None:
    assert dominates(_outcome(), _outcome())
    assert not dominates(_outcome(seconds=9.0, held=161.0), _outcome())


def test_an_interval_narrows_with_steps_that_agree() -> None:
    assert interval([3.0]) == math.inf
    assert interval([1.0, 1.0, 1.0]) == 0.0
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))


def test_a_row_compares_step_by_step() -> None:
    cells = row("p", "x", _outcome(seconds=5.0), _outcome())
    assert cells[7] == "0.500 ± 0.000"


def test_all_that_an_actor_is_paid_for_is_counted() -> None:
    causes = {"busy": 8.0, "idle": 2.0, "startup": 1.0, "wasted": 0.5}
    entries = tuple(
        CostEntry(role="decode", cause=cause, seconds=s)  # type: ignore[arg-type]
        for cause, s in causes.items()
    )
    other = CostEntry(role="learner", cause="busy", seconds=99.0)
    report = StepReport(
        job_uid="j",
        step=0,
        attempt=1,
        epoch=1,
        policy=0,
        policy_digest="",
        next_policy=1,
        next_policy_digest="",
        seconds=10.0,
        phases=PhaseSeconds(decode=8.0),
        samples=SampleCounts(expected=1),
        cost=CostReport(entries=(*entries, other)),
    )
    assert (step_of(report).held, step_of(report).busy) == (11.5, 8.5)


@pytest.mark.parametrize("part", [emulated, real])
def test_every_variant_is_a_job_that_the_spec_allows(part: object, tmp_path: object) -> None:
    setting = part.setting(tmp_path)  # type: ignore[attr-defined]
    for variant in (RAW, STATIC, *OURS, *RLHFLESS, *SWEEP):
        RLHFJobSpec.model_validate(setting.spec(variant), strict=False)
