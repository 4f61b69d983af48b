from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.api import CostReport, Job
from ebbtide.report import ReportData, collect, render_html, render_json
from ebbtide.report.scales import Scale, label, labels, ticks, whole_ticks
from ebbtide.report.views import CAUSES, actors, sections
from ebbtide.reports import (
    ActorTimeline,
    Cause,
    EvalStats,
    Interval,
    LearnerReport,
    PhaseSeconds,
    RewardStats,
    SampleCounts,
    StepReport,
    TokenCounts,
)

CREATED = "2026-01-01T00:00:00.000000Z"


def a_step(number: int, reward: float = 0.5, **more: Any) -> StepReport:
    timeline = ActorTimeline(
        name="decode-0",
        intervals=(
            Interval(cause="busy", start=0.0, end=1.0),
            Interval(cause="idle", start=1.0, end=2.0),
        ),
    )
    values: dict[str, Any] = {
        "job_uid": "u",
        "step": number,
        "attempt": 1,
        "epoch": 1,
        "policy": number,
        "policy_digest": "a",
        "next_policy": number + 1,
        "next_policy_digest": "b",
        "started_at": 100.0 + 2 * number,
        "seconds": 2.0,
        "phases": PhaseSeconds(decode=1.2, learn=0.5),
        "samples": SampleCounts(expected=8, accepted=8, valued=8),
        "rewards": RewardStats(mean=reward, std=0.1, minimum=0.0, maximum=1.0),
        "tokens": TokenCounts(response=100),
        "actors": (timeline,),
    }
    return StepReport(**{**values, **more})


def an_evaluation(mean: float) -> EvalStats:
    return EvalStats(mean=mean, pass_at_k=mean, k=1, prompts=4, samples=4)


def a_cost(total: float | None = 0.2) -> CostReport:
    part = {"role": "decode", "cause": "busy", "seconds": 10.0, "cost": total}
    rest = {"role": "decode", "cause": "unattributed", "seconds": 5.0, "cost": total and 0.0}
    return CostReport.model_validate(
        {
            "currency": "EUR",
            "total": total,
            "known": total or 0.0,
            "heldSeconds": 15.0,
            "unpricedSeconds": 0.0 if total is not None else 15.0,
            "byRole": {"decode": total},
            "byCause": {"busy": total, "unattributed": total and 0.0},
            "parts": [part, rest],
        }
    )


def data(*steps: StepReport, cost: CostReport | None = None, **job: Any) -> ReportData:
    found = Job.model_validate(
        {
            "apiVersion": "v1",
            "kind": "RLHFJob",
            "metadata": {"name": "demo", "uid": "u", "creationTimestamp": CREATED},
            "spec": {"algorithm": {"type": "grpo"}, "model": {"uri": "/m"}},
            "state": "Complete",
            **job,
        }
    )
    return ReportData(job=found, steps=steps, cost=cost or a_cost())


def test_figures_have_what_the_page_promises() -> None:
    first = a_step(0, 0.2, evaluation=an_evaluation(0.3))
    last = a_step(1, 0.6, evaluation=an_evaluation(0.7))
    status = {"completionTime": "2026-01-01T00:01:30Z"}
    found = json.loads(render_json(data(first, last, status=status)))
    assert (found["steps"], found["seconds"], found["step_seconds"]) == (2, 90.0, 4.0)
    assert (found["samples_expected"], found["samples_accepted"]) == (16, 16)
    assert (found["samples_lost"], found["samples_doubled"]) == (0, 0)
    assert (found["eval_reward_first"], found["eval_reward_last"]) == (0.3, 0.7)
    assert found["cost"]["by_role"] == {"decode": 0.2}
    assert (found["cost"]["total"], found["cost"]["currency"]) == (0.2, "EUR")
    assert [row["reward"] for row in found["series"]] == [0.2, 0.6]


def test_every_figure_is_documented() -> None:
    with open("docs/report.md", encoding="utf-8") as file:  # noqa: PTH123 - the short form
        page = file.read()
    found = json.loads(render_json(data(a_step(0))))
    names = [*found.keys() - {"cost", "series"}, *(f"cost.{n}" for n in found["cost"])]
    names = [name if name != "cost.parts" else "cost.parts[]" for name in names]
    assert [n for n in names if f"`{n}`" not in page and n != "cost.currency"] == []


def test_a_lost_sample_is_counted() -> None:
    short = a_step(0, samples=SampleCounts(expected=8, accepted=7, valued=7))
    assert json.loads(render_json(data(short)))["samples_lost"] == 1


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    page = render_html(data(a_step(0), a_step(1)))
    assert not re.search(r"<script|<link|<img|@import|url\(|https?://", page)


def test_every_chart_is_well_formed_and_named_for_those_who_cannot_see_it() -> None:
    page = render_html(data(a_step(0, evaluation=an_evaluation(0.1)), a_step(1)))
    charts = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(charts) == 5
    for chart in charts:
        root = ET.fromstring(chart)  # noqa: S314 - our own text
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert root.find("desc") is not None


def test_the_page_of_a_job_without_steps_says_so() -> None:
    empty = CostReport.model_validate(a_cost().model_dump(by_alias=True) | {"parts": []})
    assert "No step is committed yet." in render_html(data(cost=empty))


def test_an_unknown_cost_is_called_unknown_and_time_is_drawn_instead() -> None:
    page = render_html(data(a_step(0), cost=a_cost(None)))
    assert "Total unknown for 15 s held." in page
    assert "seconds held" in page


def test_what_comes_from_the_job_is_escaped() -> None:
    spec = {"algorithm": {"type": "grpo"}, "model": {"uri": "/<b>&"}}
    page = render_html(data(a_step(0), spec=spec, message="<script>alert(1)</script>"))
    assert "<script>" not in page
    assert "/&lt;b&gt;&amp;" in page


def test_collecting_asks_the_api_alone() -> None:
    class Source:
        def get(self, name: str) -> Job:
            return data().job

        def metrics(self, name: str) -> list[dict[str, Any]]:
            return [a_step(0).model_dump(mode="json", by_alias=True)]

        def cost(self, name: str) -> CostReport:
            return a_cost()

    assert collect(Source(), "demo").steps == (a_step(0),)


@given(st.lists(st.tuples(st.sampled_from(CAUSES[:5]), st.floats(0, 50)), min_size=1, max_size=8))
def test_the_actor_chart_loses_no_time(parts: list[tuple[Cause, float]]) -> None:
    at, intervals = 0.0, []
    for cause, length in parts:
        intervals.append(Interval(cause=cause, start=at, end=at + length))
        at += length
    step = a_step(0, actors=(ActorTimeline(name="a", intervals=tuple(intervals)),))
    section = actors([step])
    assert section is not None
    told = sum(float(seconds) for _, seconds in section.rows)
    assert told == pytest.approx(at, abs=0.1 * len(parts))


def updated(**stats: float) -> LearnerReport:
    return LearnerReport(seconds=0.5, tokens=10, sequences=2, computed=2, stats=stats)


def test_the_learners_figures_are_drawn_where_there_are_any() -> None:
    steps = [a_step(n, learner=updated(loss=2.0 - n, entropy=1.0, kl=0.0)) for n in range(2)]
    found = {section.title: section for section in sections(data(*steps))}
    assert found["Loss"].rows == (("0", "2"), ("1", "1"))
    assert found["Entropy and KL"].columns == ("step", "entropy")
    assert "Gradient norm" not in found
    assert json.loads(render_json(data(*steps)))["series"][1]["learner"]["loss"] == 1.0


def test_many_steps_are_thinned_in_the_picture_but_not_in_the_table() -> None:
    many = [a_step(number) for number in range(1000)]
    (found,) = (s for s in sections(data(*many)) if s.title == "Step time by phase")
    assert found.svg.count("<rect") < 500
    assert len(found.rows) == 1000


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_cover_their_range_evenly(low: float, span: float) -> None:
    found = ticks(low, low + span)
    steps = {round(b - a, 6) for a, b in pairwise(found)}
    assert found[0] <= low + 1e-6 * span
    assert found[-1] >= low + span - 1e-6 * span
    assert len(found) <= 13
    assert max(steps) - min(steps) <= 1e-4 * max(steps) + 1e-5


@pytest.mark.parametrize(("low", "high"), [(0.0, 2.3e-12), (0.91, 0.910004), (0.0, 3.0e9)])
def test_the_labels_of_an_axis_differ(low: float, high: float) -> None:
    marks = ticks(low, high)
    texts = labels(marks)
    assert len(set(texts)) == len(marks) >= 4
    assert [float(text) for text in texts] == pytest.approx(marks, rel=1e-6, abs=0.0)


def test_counts_get_whole_ticks() -> None:
    assert whole_ticks(0, 3) == [0, 1, 2, 3]
    assert whole_ticks(0, 40)[:3] == [0, 5, 10]


def test_a_scale_maps_its_ends() -> None:
    scale = Scale(0.0, 10.0, 100.0, 0.0)
    assert (scale.at(0.0), scale.at(10.0), scale.at(5.0)) == (100.0, 0.0, 50.0)
    assert [label(value) for value in (0.0, 0.5, 1200.0, 1e-4)] == ["0", "0.5", "1200", "0.0001"]
