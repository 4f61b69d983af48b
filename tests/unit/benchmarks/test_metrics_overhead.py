"""The excess is judged by its upper bound, and only where somebody looked."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.harness import Measured, load_targets, verdict
from benchmarks.metrics_overhead.figures import Pair, judged, table
from benchmarks.metrics_overhead.receiver import Receiver
from benchmarks.metrics_overhead.sides import spec
from ebbtide.adapters.otlp import document
from ebbtide.spec import RLHFJobSpec
from ebbtide.tracing import StepTrace

TARGET = load_targets()["metrics_overhead"]
CHEAP = [Pair(on, 100.0) for on in (100.9, 101.1, 101.0, 101.0)]


def holds(pairs: list[Pair]) -> bool:
    value = judged(pairs, spans=9, scrapes=9)
    return verdict("metrics_overhead", TARGET, Measured(value, *table(pairs, spans=9, scrapes=9)))[
        1
    ]


def test_a_small_excess_that_is_sure_holds() -> None:
    assert judged(CHEAP, spans=9, scrapes=9) == pytest.approx(1.13, abs=0.01)
    assert holds(CHEAP)


def test_a_planted_excess_flips_the_verdict() -> None:
    assert not holds([Pair(pair.on * 1.02, pair.off) for pair in CHEAP])


def test_a_small_excess_that_is_not_sure_does_not_hold() -> None:
    assert not holds([Pair(99.0, 100.0), Pair(103.0, 100.0), Pair(101.0, 100.0)])


@pytest.mark.parametrize(("spans", "scrapes"), [(0, 9), (9, 0)])
def test_without_anybody_who_looks_there_is_no_figure(spans: int, scrapes: int) -> None:
    assert math.isnan(judged(CHEAP, spans=spans, scrapes=scrapes))


def test_a_receiver_counts_spans_of_all_roles() -> None:
    receiver, trace = Receiver(""), StepTrace("u", 1, 0)
    spans = [trace.part(role, "work", "p", 0.0, 1.0, {}) for role in ("decode", "decode", "reward")]
    receiver.take(document(spans))
    assert receiver.spans == len(spans)
    assert len(json.loads(document(spans))["resourceSpans"]) == 2


def test_the_job_of_both_sides_is_one_that_the_spec_allows(tmp_path: Path) -> None:
    RLHFJobSpec.model_validate(spec(tmp_path), strict=False)
