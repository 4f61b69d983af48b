"""A ticket that is not exactly right, or not in time, opens nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide.transfer.tickets import MOVES, Lease, Stage, patience, unfit
from ebbtide.wire import KvKey, KvTicket

KEY = KvKey("policy", "prefix", 7, "layout")
TICKET = KvTicket(KEY, "a0", 1, "a1", 30.0, b"x")
ORDER = [Stage.GRANTED, Stage.READING, Stage.CONSUMED, Stage.EXPIRED, Stage.RELEASED]
moments = st.floats(0.0, 60.0)


def test_the_right_reader_with_the_right_ticket_may_read() -> None:
    assert not unfit(TICKET, TICKET, reader="a1", wanted=KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"policy_digest": "other"},
        {"prefix_hash": "other"},
        {"n_tokens": 8},
        {"layout": "other"},
    ],
    ids=str,
)
def test_kv_of_something_else_is_unfit(change: dict[str, Any]) -> None:
    assert unfit(TICKET, TICKET, reader="a1", wanted=replace(KEY, **change))
    other = replace(TICKET, key=replace(KEY, **change))
    assert unfit(other, TICKET, reader="a1", wanted=KEY)
    assert unfit(TICKET, other, reader="a1", wanted=KEY)


@pytest.mark.parametrize("change", [{"holder": "b"}, {"holder_epoch": 2}, {"reader": "a2"}])
def test_a_ticket_of_another_is_unfit(change: dict[str, Any]) -> None:
    assert unfit(replace(TICKET, **change), TICKET, reader="a1", wanted=KEY)
    assert unfit(TICKET, replace(TICKET, **change), reader="a1", wanted=KEY)


def test_another_reader_may_not_use_it() -> None:
    assert "a1" in unfit(TICKET, TICKET, reader="a2", wanted=KEY)


def test_a_reader_gives_up_long_before_the_holder() -> None:
    assert patience(TICKET, 60.0) == 10.0
    assert patience(TICKET, 2.0) == 2.0


@given(st.lists(st.tuples(st.sampled_from(ORDER), moments), max_size=6))
def test_a_lease_is_consumed_once_after_one_read_in_time(moves: list[tuple[Stage, float]]) -> None:
    lease, passed = Lease(TICKET, until=30.0), [(Stage.GRANTED, 0.0)]
    for stage, now in sorted(moves, key=lambda move: move[1]):
        if moved := lease.to(stage, now):
            lease, passed = moved, [*passed, (stage, now)]
    stages = [stage for stage, _ in passed]
    assert len(set(stages)) == len(stages)
    assert all(later in MOVES[stage] for stage, later in pairwise(stages))
    if Stage.CONSUMED in stages:
        assert stages == [Stage.GRANTED, Stage.READING, Stage.CONSUMED]
        assert all(now < 30.0 for _, now in passed)


@given(moments, st.sampled_from(ORDER))
def test_an_open_lease_expires_at_its_time_and_what_has_ended_stays(t: float, s: Stage) -> None:
    lease = Lease(TICKET, until=30.0, stage=s)
    over = t >= 30.0 and s in MOVES
    assert lease.at(t).stage == (Stage.EXPIRED if over else s)
    assert lease.at(t).open == (s in MOVES and not over)
