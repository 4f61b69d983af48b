from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ebbtide.errors import Refused
from ebbtide.reports import StepReport
from services.planner.core.planning.record import ValueOfTime
from services.planner.core.steering import straight_profile
from services.planner.simulate.replay import main, options_of
from services.planner.simulate.whatif import (
    Option,
    in_words,
    recorded_prices,
    recorded_steps,
    replay,
)

CURVE = straight_profile("recorded", first=0.01, more=0.0001)


def report(step: int, actors: int = 2, seconds: float = 10.0) -> StepReport:
    lengths = np.random.default_rng(step).integers(50, 500, 64).tolist()
    points = [{"expected": n * 1.05, "p90": n * 1.4, "realised": n, "cut": False} for n in lengths]
    decision = {
        "rule": "chosen",
        "reason": "",
        "actors": actors,
        "scaling": "static",
        "samples": 64,
    }
    document: dict[str, Any] = {
        "job_uid": "u", "step": step, "attempt": 1, "epoch": 1, "policy": 0, "policy_digest": "",
        "next_policy": 1, "next_policy_digest": "", "seconds": seconds + 5,
        "phases": {"decode": seconds}, "samples": {"expected": 64}, "groups": {"expected": 64},
        "tokens": {"prompt": 6400},
        "actors": [{"name": f"a{n}", "samples": 5} for n in range(actors)],
        "decision": {**decision, "prediction": "blend", "lengths": points},
        "cost": {"entries": [
            {"role": "decode", "cause": "busy", "seconds": 36.0, "cost": 0.02},
            {"role": "learner", "cause": "busy", "seconds": 15.0, "cost": 0.03},
        ]},
    }  # fmt: skip
    return StepReport.model_validate_json(json.dumps(document))


def replayed(*options: Option) -> Any:
    reports = [report(step) for step in range(3)]
    return replay(
        recorded_steps(reports),
        CURVE,
        slots=64,
        limit=512,
        prices=recorded_prices(reports),
        options=options,
        most=8,
    )


def test_prices_are_those_of_the_run() -> None:
    assert tuple(recorded_prices([report(0)])) == pytest.approx((2.0, 7.2))


def test_the_curve_is_scaled_until_the_recorded_steps_take_as_long() -> None:
    found = replayed()
    assert found.recorded.decode_seconds == pytest.approx(10.0, rel=0.1)
    assert found.error < 0.1


def test_more_actors_are_faster_and_cost_more_actor_seconds() -> None:
    one, eight = replayed(Option("1", actors=1), Option("8", actors=8)).outcomes
    assert one.decode_seconds > eight.decode_seconds
    assert one.actor_seconds < eight.actor_seconds


def test_an_objective_that_values_time_chooses_more_actors() -> None:
    cheap, dear = replayed(
        Option("a", objective=ValueOfTime(0.0)), Option("b", objective=ValueOfTime(5000.0))
    ).outcomes
    assert cheap.actors < dear.actors
    assert cheap.decode_seconds > dear.decode_seconds


def test_the_words_say_how_far_they_can_be_trusted() -> None:
    assert "are met within" in in_words(replayed(Option("4 actors", actors=4)))


def test_a_job_without_records_and_wrong_options_are_refused() -> None:
    with pytest.raises(Refused, match="decision record"):
        recorded_steps([])
    with pytest.raises(Refused, match="at least one actor"):
        options_of([0], [], [])
    with pytest.raises(Refused, match="lambda"):
        options_of([1], [], [1.5])


SPEC = {
    "model": {"uri": "/m"},
    "dataset": {"train": {"type": "jsonl", "uri": "/d.jsonl"}},
    "algorithm": {"type": "grpo", "groupSize": 4},
    "training": {"totalSteps": 3, "promptsPerStep": 16, "maxResponseTokens": 512},
    "reward": {"components": [{"type": "exact", "name": "never"}]},
    "decode": {"engine": "emulated", "replicas": 2},
}


def test_a_run_from_the_api_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [json.loads(report(step).model_dump_json(by_alias=True)) for step in range(3)]
    asked = {"actors": [1, 4], "hourWorth": [10.0], "weights": [0.7], "json": True}
    assert main(json.dumps({"spec": SPEC, "steps": steps, "options": asked})) == 0
    found = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in found["outcomes"]]
    assert names == ["1 actors", "4 actors", "value of time 10 $/h", "lambda 0.7"]
    assert all(one["dollars"] > 0 for one in found["outcomes"])


def test_a_run_without_a_record_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(json.dumps({"spec": SPEC, "steps": [], "options": {}})) == 2
    assert "decision record" in capsys.readouterr().err
