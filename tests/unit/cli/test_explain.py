"""A decision in words."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from ebbtide.cli.commands import app
from ebbtide.cli.explain import in_words, moves_in_words, one_step
from ebbtide.reports import (
    CalibrationReport,
    CandidateReport,
    DecisionReport,
    MigrationReport,
    MoveReport,
)

CANDIDATE = CandidateReport(
    kind="unequal",
    actors=3,
    seconds=9.0,
    steady_seconds=8.0,
    actor_seconds=20.0,
    score=0.1,
    chosen=True,
)


def a_decision(**more: Any) -> DecisionReport:
    fields: dict[str, Any] = {
        "rule": "chosen",
        "reason": "unequal on 3 has the best score",
        "actors": 3,
        "scaling": "elastic",
        "prediction": "blend",
        "samples": 64,
        "tokens": 9000.0,
        "longest": 600.0,
        "candidates": (CANDIDATE,),
        "predicted_decode_seconds": 9.0,
        "realised_decode_seconds": 10.0,
        "predicted_actor_seconds": 20.0,
        "realised_busy_seconds": 25.0,
        "realised_held_seconds": 30.0,
    }
    return DecisionReport(**{**fields, **more})


def text(decision: DecisionReport) -> str:
    return "\n".join(in_words(7, decision))


def test_choice_reason_inputs_and_outcome_are_said() -> None:
    said = text(a_decision())
    assert "step 7: 3 actors (chosen, elastic)" in said
    assert "why: unequal on 3 has the best score" in said
    assert "64 samples (groups kept together), 9000 tokens expected, the longest 600" in said
    assert "decoding: 9.0 s predicted, 10 s realised (-10%)" in said
    assert "actors: 20 s predicted, 25 s realised (-20%) of decoding, 30 s held" in said


def test_what_is_not_known_is_not_said() -> None:
    blind = a_decision(
        samples=0, candidates=(), predicted_decode_seconds=None, predicted_actor_seconds=None
    )
    assert "predicted" not in text(blind)
    assert "expected" not in text(blind)


def test_how_good_the_lengths_were_is_said_with_what_could_not_be_measured() -> None:
    found = CalibrationReport(samples=64, censored=2, coverage_p50=0.48, mae=12.4)
    said = text(a_decision(calibration=found))
    assert "64 answers, 2 cut by the limit, 48% at or below the median" in said
    assert "unknown at or below P90, error 12 tokens" in said


def test_moves_are_told_with_what_became_of_them() -> None:
    move = MoveReport(at=4.0, source="a", target="b", samples=3, how="kv", predicted_gain=2.5)
    counts = {"ordered": 3, "moved": 2, "with_kv": 2, "finished": 1}
    said = list(moves_in_words(MigrationReport(rule="benefit", moves=(move,), **counts)))
    assert said[0].startswith("moves (benefit): 3 ordered, 2 moved (2 with KV, 0 computed again)")
    assert said[1] == "  after 4.0 s: 3 from a to b (kv, gain 2.5)"
    assert list(moves_in_words(None)) == []


def test_who_sleeps_and_what_a_wake_takes_is_said_where_anybody_does() -> None:
    said = text(a_decision(parked=2, wake_seconds=3.0))
    assert "0 actors there, 0 coming, 2 asleep" in said
    assert ", a wake 3.0 s" in said
    assert "asleep" not in text(a_decision())


def test_who_computes_prompts_is_said_where_the_planner_chose_it() -> None:
    said = text(a_decision(prefill="service", prefill_reason="a service pays"))
    assert "prompts (service): a service pays" in said
    assert "prompts" not in text(a_decision())


def test_a_step_may_be_an_argument_or_an_option() -> None:
    assert [one_step(2, None), one_step(None, 2), one_step(2, 2), one_step(None, None)] == [
        2,
        2,
        2,
        None,
    ]


def test_two_steps_that_differ_are_refused() -> None:
    found = CliRunner().invoke(app, ["explain", "demo", "1", "--step", "2"])
    assert found.exit_code == 2
    assert "step 1 and --step 2 differ: give one of them" in found.stderr
