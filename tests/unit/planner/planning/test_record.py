from __future__ import annotations

import msgspec
import pytest

from services.planner.core.planning.record import (
    Candidate,
    Decision,
    Inputs,
    Lambda,
    Realised,
    time_error,
    with_realised,
)

BEST = Candidate("unequal", 4, 8.0, 8.0, 30.0, None, 1.0)
INPUTS = Inputs("d", 256, 256, 1e5, 900.0, 0, 16, 4, 0, 0, Lambda(0.7), "p")
DECISION = Decision("chosen", 4, INPUTS, (BEST,), BEST, "because")


def test_a_decision_survives_the_ledger() -> None:
    data = msgspec.msgpack.encode(DECISION)
    assert msgspec.msgpack.decode(data, type=Decision) == DECISION


def test_predicted_is_compared_with_realised() -> None:
    joined = with_realised(DECISION, Realised(seconds=10.0, actor_seconds=33.0))
    assert time_error(joined) == pytest.approx(-0.2)
    assert joined.chosen == BEST


def test_an_unknown_outcome_has_no_error() -> None:
    assert time_error(DECISION) is None
    nothing = with_realised(DECISION, Realised(seconds=0.0, actor_seconds=0.0))
    assert time_error(nothing) is None
