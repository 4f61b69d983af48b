"""The fidelity benchmark reads the ledger aright and predicts by the profile alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sim_fidelity.jobs import BATCHES, JOBS, spec
from benchmarks.sim_fidelity.replayed import Step, compared, played, steps
from ebbtide import ledger, paths
from ebbtide.reports import PhaseSeconds, SampleCounts, StepReport
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import (
    Accepted,
    Committed,
    Dispatch,
    Dispatched,
    GroupPlan,
    PolicyRef,
    PromptRef,
    Record,
    Ref,
    SampleKey,
    StepOpened,
    StepPlan,
)
from services.planner.core.planning.profile import make_profile
from services.planner.core.steering import straight_profile

POLICY = PolicyRef(0, 1, "a" * 64)
REF = Ref("x", "b" * 64, 1)
CURVE = make_profile(straight_profile("any", first=0.01, more=0.01))
"""Ten milliseconds for each sample of the batch."""


def _plan(step: int) -> StepPlan:
    group = GroupPlan(0, "p", PromptRef(REF, 0), 2, "train", 1.0, 64, prompt_tokens=3)
    return StepPlan(step, POLICY, (group,), 2, 0)


def _step(actors: tuple[str, str], lengths: tuple[int, int]) -> Step:
    found = Step(_plan(0))
    found.handed = {(0, index): actor for index, actor in enumerate(actors)}
    found.lengths = {(0, index): tokens for index, tokens in enumerate(lengths)}
    return found


def test_samples_of_one_actor_share_its_batch_and_those_of_two_do_not() -> None:
    alone = played(_step(("a", "b"), (100, 50)), CURVE, slots=4)
    together = played(_step(("a", "a"), (100, 50)), CURVE, slots=4)
    assert alone == pytest.approx(1.0)
    assert together == pytest.approx(50 * 0.02 + 50 * 0.01)


def test_a_sample_counts_where_it_was_handed_out_last(tmp_path: Path) -> None:
    _write(tmp_path, step=0, actors=("a", "b", "a"))
    [found] = steps(tmp_path, "u")
    assert found.handed == {(0, 0): "a", (0, 1): "a"}
    assert found.lengths == {(0, 0): 100, (0, 1): 50}


def test_what_comes_beside_decoding_is_learned_before_the_steps_that_are_judged(
    tmp_path: Path,
) -> None:
    _write(tmp_path, step=0, actors=("a", "b"))
    _write(tmp_path, step=1, actors=("a", "b"), slot=1)
    reports = [_report(0, whole=5.0, decode=2.0), _report(1, whole=8.0, decode=2.0)]
    [found] = compared(tmp_path, "u", reports, CURVE, slots=4, warmup=1)
    assert found.predicted == pytest.approx(1.0 + 3.0)
    assert found.error == pytest.approx(0.5)


def test_no_job_runs_at_a_load_that_was_measured(tmp_path: Path) -> None:
    for job in (job for jobs in JOBS.values() for job in jobs):
        RLHFJobSpec.model_validate(spec(job, tmp_path), strict=False)
        assert job.prompts * 4 / job.actors not in BATCHES


def _write(folder: Path, *, step: int, actors: tuple[str, ...], slot: int = 0) -> None:
    """One segment: a step whose second sample may be handed out twice."""
    keys = [SampleKey("u", step, 0, min(n, 1)) for n in range(len(actors))]
    handed = [
        Dispatched(key, Dispatch(1, 1, n), actor, POLICY)
        for n, (key, actor) in enumerate(zip(keys, actors, strict=True))
    ]
    ended = [
        Accepted(key, Dispatch(1, 1, 0), REF, POLICY, tokens, "stop")
        for key, tokens in zip(keys, (100, 50), strict=False)
    ]
    records: list[Record] = [StepOpened(_plan(step)), *handed, *ended, Committed(step, POLICY, REF)]
    file = folder / paths.segment("u", slot)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(ledger.encode_segment(slot, b"w" * 16, records))


def _report(step: int, *, whole: float, decode: float) -> StepReport:
    return StepReport(
        job_uid="u",
        step=step,
        attempt=1,
        epoch=1,
        policy=0,
        policy_digest="",
        next_policy=1,
        next_policy_digest="",
        seconds=whole,
        phases=PhaseSeconds(decode=decode),
        samples=SampleCounts(expected=2),
    )
