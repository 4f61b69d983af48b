"""What a decision came to: predicted against realised, and how good the lengths were (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ebbtide.reports import (
    CalibrationReport,
    CandidateReport,
    DecisionReport,
    LengthPoint,
)
from services.planner.core import account
from services.planner.core.cost import Pod, Stretch
from services.planner.core.lengths import CUT_SHORT, Lengths
from services.planner.core.planning.record import Candidate, Inputs
from services.planner.core.prediction.calibration import Calibration
from services.planner.core.reporting import Marks
from services.planner.core.samples import OpenStep

_POINTS = 200
"""Answers whose predicted and realised lengths a report shows, at most."""


def decision_report(
    step: OpenStep,
    *,
    lengths: Lengths,
    marks: Marks,
    now: float,
    stretches: Mapping[Pod, Sequence[Stretch]],
) -> DecisionReport | None:
    """None for a step that decoded nothing. `now` is the moment of the commit."""
    if step.decided is None:
        return None
    told = account.load(step.decided.decision)
    chosen, seconds = told.decision.chosen, marks.seconds(now)
    busy, held = _decode_seconds(stretches, marks)
    decode = chosen.seconds if chosen else None
    whole = decode + told.other_seconds if decode and told.other_seconds is not None else None
    return DecisionReport(
        rule=told.decision.rule,
        reason=told.decision.reason,
        actors=step.decided.actors,
        scaling=told.scaling,
        prediction=told.prediction,
        together=told.together,
        profile=told.profile,
        start_seconds=told.start_seconds,
        wake_seconds=told.wake_seconds,
        prefill=told.prefill,
        prefill_reason=told.prefill_reason,
        **_inputs(told.decision.inputs),
        candidates=tuple(_candidate(one, one == chosen) for one in told.decision.candidates),
        predicted_decode_seconds=decode,
        realised_decode_seconds=seconds.decode,
        predicted_step_seconds=whole,
        realised_step_seconds=now - marks.committed,
        predicted_actor_seconds=chosen.actor_seconds if chosen else None,
        realised_busy_seconds=busy,
        realised_held_seconds=held,
        calibration=_calibration(lengths.calibration(step)) if lengths_known(told) else None,
        lengths=_points(step, lengths) if lengths_known(told) else (),
    )


def lengths_known(told: account.Account) -> bool:
    """Whether the decision had a forecast to go by."""
    return told.decision.inputs is not None


def _inputs(inputs: Inputs | None) -> dict[str, Any]:
    if inputs is None:
        return {}
    return {
        "samples": inputs.samples,
        "items": inputs.items,
        "tokens": inputs.tokens,
        "longest": inputs.longest,
        "minimum": inputs.minimum,
        "maximum": inputs.maximum,
        "serving": inputs.serving,
        "loading": inputs.loading,
        "parked": inputs.parked,
        "digest": inputs.digest,
    }


def _candidate(one: Candidate, chosen: bool) -> CandidateReport:
    return CandidateReport(
        kind=one.kind,
        actors=one.actors,
        seconds=one.seconds,
        steady_seconds=one.steady_seconds,
        actor_seconds=one.actor_seconds,
        cost=one.dollars,
        score=one.score,
        chosen=chosen,
    )


def _decode_seconds(
    stretches: Mapping[Pod, Sequence[Stretch]], marks: Marks
) -> tuple[float, float]:
    """Seconds that actors were busy, and held awake, from the step's opening until its last token."""
    end = marks.decoded or marks.closed
    busy = held = 0.0
    for (role, _), done in stretches.items():
        for stretch in done if role == "decode" else ():
            inside = max(0.0, min(stretch.end, end) - max(stretch.start, marks.opened))
            held += inside if stretch.cause != "parked" else 0.0
            busy += inside if stretch.cause == "busy" else 0.0
    return busy, held


def _calibration(found: Calibration | None) -> CalibrationReport | None:
    if found is None:
        return None
    return CalibrationReport(
        samples=found.samples,
        censored=found.censored,
        coverage_p50=_known(found.coverage_p50),
        coverage_p90=_known(found.coverage_p90),
        mae=_known(found.mae),
        rank=_known(found.rank),
        tail_recall=_known(found.tail_recall),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _points(step: OpenStep, lengths: Lengths) -> tuple[LengthPoint, ...]:
    """Evenly over the samples, in their order."""
    whole = lengths.forecast(step)
    ended = [i for i, found in enumerate(step.rollouts) if found is not None]
    if whole is None or not ended:
        return ()
    some = ended[:: -(-len(ended) // _POINTS)]
    rows = whole.take(np.array(some, dtype=np.intp))
    expected, high = rows.mean().tolist(), rows.at(0.9).tolist()
    return tuple(
        LengthPoint(expected=e, p90=h, realised=found.n_tokens, cut=found.finish == CUT_SHORT)
        for e, h, i in zip(expected, high, some, strict=True)
        if (found := step.rollouts[i]) is not None
    )
