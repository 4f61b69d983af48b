"""The sections about what the planner expected and did."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from ebbtide.report.planning import lengths, moves, planning, prompts, step_times, timeline
from ebbtide.reports import (
    ActorTimeline,
    Cause,
    DecisionReport,
    Interval,
    LengthPoint,
    MigrationReport,
    MoveReport,
    PhaseSeconds,
    PrefillCounts,
    SampleCounts,
    StepReport,
    summarise,
)


def an_actor(name: str, *parts: tuple[Cause, float, float]) -> ActorTimeline:
    intervals = tuple(Interval(cause=cause, start=a, end=b) for cause, a, b in parts)
    return ActorTimeline(name=name, intervals=intervals)


def a_step(number: int = 0, **more: Any) -> StepReport:
    values: dict[str, Any] = {
        "job_uid": "u",
        "step": number,
        "attempt": 1,
        "epoch": 1,
        "policy": number,
        "policy_digest": "a",
        "next_policy": number + 1,
        "next_policy_digest": "b",
        "started_at": 100.0 + 10 * number,
        "seconds": 10.0,
        "samples": SampleCounts(expected=8, accepted=8, valued=8),
        "phases": PhaseSeconds(sync=1.0, decode=5.0, learn=4.0),
    }
    return StepReport(**{**values, **more})


def a_decision(predicted: float, realised: float, *points: LengthPoint) -> DecisionReport:
    return DecisionReport(
        rule="chosen",
        reason="",
        actors=1,
        scaling="elastic",
        prediction="blend",
        predicted_step_seconds=predicted,
        realised_step_seconds=realised,
        lengths=points,
    )


def test_steps_without_plans_have_no_sections() -> None:
    assert planning([a_step(0), a_step(1)]) == []


def test_each_actor_has_a_row_of_what_it_did() -> None:
    ten = an_actor("decode-10", ("busy", 0.0, 4.0))
    two = an_actor("decode-2", ("loading", 0.0, 1.0), ("busy", 1.0, 3.0))
    section = timeline([a_step(actors=(ten, two))])
    assert section
    assert section.rows == (("decode-2", "3.0", "2.0"), ("decode-10", "4.0", "4.0"))
    rects = [e for e in ET.fromstring(section.svg).iter() if e.tag == "rect"]  # noqa: S314 - ours
    assert [r.get("class") for r in rects] == ["c-loading", "c-busy", "c-busy"]


def test_a_long_job_shows_its_last_steps() -> None:
    parts: list[tuple[Cause, float, float]] = [("busy", i, i + 1) for i in range(100)]
    steps = [a_step(i, actors=(an_actor("decode-0", *parts),)) for i in range(60)]
    section = timeline(steps)
    assert section
    assert "The last 40 steps are drawn" in section.note


def test_predicted_step_times_stand_beside_what_came() -> None:
    section = step_times([a_step(1, decision=a_decision(9.0, 10.0)), a_step(2)])
    assert section
    assert section.rows == (("1", "9.000", "10.000"),)
    assert "Median error 10%" in section.note


def test_each_answer_is_a_dot_at_what_was_expected_and_what_came() -> None:
    whole = LengthPoint(expected=50.0, p90=80.0, realised=50, cut=False)
    cut = LengthPoint(expected=100.0, p90=128.0, realised=100, cut=True)
    section = lengths([a_step(3, decision=a_decision(1.0, 1.0, whole, cut))])
    assert section
    dots = [e for e in ET.fromstring(section.svg).iter() if e.tag == "circle"]  # noqa: S314 - ours
    assert [dot.get("class") for dot in dots] == ["mark c1", "mark c4"]
    assert section.rows[1] == ("3", "100.0", "128.0", "100")


def test_prompt_tokens_are_split_by_what_saved_them() -> None:
    counts = PrefillCounts(
        needed=800,
        computed=100,
        in_service=100,
        imported=200,
        saved_by_caching=600,
        saved_by_dedup=100,
    )
    section = prompts([a_step(prefill=counts)])
    assert section
    assert section.rows == (("0", "100", "100", "600"),)
    assert "12.5% were computed" in section.note


def test_moves_are_named_one_by_one() -> None:
    move = MoveReport(at=3.5, source="decode-1", target="decode-0", samples=2, how="kv")
    found = MigrationReport(rule="benefit", ordered=2, moved=2, with_kv=2, moves=(move,))
    section = moves([a_step(migration=found)])
    assert section
    assert section.rows == (("0", "3.5", "decode-1", "decode-0", "2", "kv"),)


def test_a_job_in_which_nothing_moved_has_no_such_section() -> None:
    assert moves([a_step(migration=MigrationReport(rule="benefit"))]) is None


@pytest.mark.parametrize(
    ("parts", "fewest", "most"),
    [
        ([(0.0, 10.0)], 1, 1),
        ([(0.0, 10.0), (3.0, 4.0)], 1, 2),
        ([(0.0, 3.0), (2.0, 5.0)], 0, 2),
        ([(0.0, 0.5), (7.0, 9.0)], 0, 0),
    ],
    ids=["always", "one comes and goes", "none at the end", "outside the decode phase"],
)
def test_actors_are_counted_while_samples_are_decoded(
    parts: list[tuple[float, float]], fewest: int, most: int
) -> None:
    actors = [an_actor(f"decode-{i}", ("busy", *part)) for i, part in enumerate(parts)]
    found = summarise([a_step(actors=tuple(actors))])
    assert (found.actors_min, found.actors_max) == (fewest, most)
