"""Spans of all roles meet in one trace at a receiver that speaks OTLP over HTTP."""

from __future__ import annotations

import math

import pytest

from benchmarks.stack import until
from ebbtide.adapters.daemon import free_port
from ebbtide.adapters.otlp import OtlpSpans, open_spans
from ebbtide.errors import Refused
from ebbtide.tracing import NO_SPANS, Attributes, Span, StepTrace
from ebbtide.wire import Rollout, SampleKey, ScoreReady, Value
from services.decode.core.tracing import decoded
from services.planner.core.tracing import step_spans
from services.prefill.core.tracing import Prefilled, prefilled
from services.reward.app.judged import Judged, judged_spans
from tests.unit.gateway.test_artifacts_api import HAND, UID, rollout
from tests.unit.gateway.test_figures import a_report
from tests.worlds.spans import receiver


def samples(*groups: int, step: int = 3) -> list[Rollout]:
    return [rollout(SampleKey(UID, step, group, 0), [1, 2]) for group in groups]


def everybody(step: int) -> list[Span]:
    """What planner, an actor, a scorer and the learner say of one step."""
    ended = samples(0, 1, step=step)
    ready = ScoreReady(ended[0].key, "d", Value(1.0, ()), "s", 0.5, "reward-0")
    learn = StepTrace(UID, 1, step).part("learner", "learn", "learner-0", 106.0, 109.0, {})
    return [
        *step_spans(a_report(step), "planner-0"),
        *decoded(ended, "decode-0", 105.0),
        *judged_spans([Judged(ready, 1, 105.0)], "reward-0", 106.0),
        *prefilled([Prefilled(StepTrace(UID, 1, step), 5, 100.0, 100.5)], "prefill-0"),
        learn,
    ]


def test_what_all_roles_say_of_a_step_is_one_trace_with_one_root() -> None:
    with receiver() as (url, got):
        spans = open_spans(url)
        for span in everybody(3):
            spans.add(span)
        spans.close()
    assert {service for service, _ in got} == {
        "ebbtide-planner",
        "ebbtide-decode",
        "ebbtide-reward",
        "ebbtide-learner",
        "ebbtide-prefill",
    }
    assert len({span.trace_id for _, span in got}) == 1
    (root,) = [span for _, span in got if not span.parent_span_id]
    assert root.name == "step 3"
    assert {span.parent_span_id for _, span in got if span is not root} == {root.span_id}
    assert len({span.span_id for _, span in got}) == len(got)
    phases = {span.name: span for _, span in got if span.name.startswith("phase")}
    assert set(phases) == {"phase decode", "phase learn"}
    decode = phases["phase decode"]
    assert decode.end_time_unix_nano - decode.start_time_unix_nano == 6_000_000_000


def test_attributes_keep_their_kinds_even_numbers_that_are_not_finite() -> None:
    told: Attributes = {
        "words": "a",
        "whole": 1 << 40,
        "half": 0.5,
        "none": math.nan,
        "most": math.inf,
    }
    with receiver() as (url, got):
        spans = open_spans(url)
        spans.add(StepTrace(UID, 1, 3).part("decode", "work", "a0", 1.0, 2.0, told))
        spans.close()
    [(_, span)] = got
    values = {each.key: each.value for each in span.attributes}
    assert (values["words"].string_value, values["whole"].int_value) == ("a", 1 << 40)
    assert (values["half"].double_value, values["most"].double_value) == (0.5, math.inf)
    assert math.isnan(values["none"].double_value)


def test_spans_are_sent_together_while_the_process_works() -> None:
    with receiver() as (url, got):
        spans = OtlpSpans(url, pause=0.2)
        for _ in range(2):
            for span in everybody(3):
                spans.add(span)
        until(lambda: len(got) == 2 * len(everybody(3)), seconds=20, what="all spans")
        spans.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="no http"):
        open_spans("collector:4317")


def test_a_receiver_that_is_not_there_stops_nobody() -> None:
    spans = open_spans(f"http://127.0.0.1:{free_port()}/v1/traces")
    spans.add(everybody(3)[0])
    spans.close()


def test_a_receiver_that_refuses_stops_nobody() -> None:
    with receiver(status=400) as (url, _):
        spans = open_spans(url)
        for span in everybody(3):
            spans.add(span)
        spans.close()


def test_without_an_address_nothing_is_made() -> None:
    assert open_spans("") is NO_SPANS


def test_an_actor_tells_of_each_steps_samples_apart() -> None:
    found = list(decoded([*samples(0, 1), *samples(0, step=4)], "decode-0", 50.0))
    assert [
        (span.attributes["ebbtide.samples"], span.attributes["ebbtide.tokens"]) for span in found
    ] == [(2, 4), (1, 2)]
    assert [span.trace for span in found] == [StepTrace(UID, HAND.attempt, s).id for s in (3, 4)]
    assert found[0].start == pytest.approx(49.9)


def test_a_step_that_is_done_again_has_a_trace_of_its_own() -> None:
    ids = {StepTrace(UID, attempt, step).id for attempt in (1, 2) for step in (0, 1)}
    assert len(ids) == 4
    assert StepTrace(UID, 1, 0).id == StepTrace(UID, 1, 0).id != StepTrace("other", 1, 0).id
