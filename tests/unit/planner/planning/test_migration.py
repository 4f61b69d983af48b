from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.core.planning.matching import cheapest_matching
from services.planner.core.planning.migration import (
    Move,
    Working,
    Worth,
    benefit_rule,
    freed,
    global_cut,
    tau_rule,
)
from services.planner.core.prediction.forecast import LEVELS, Forecast
from tests.unit.planner.planning.samples import profile


def _actor(
    name: str, running: int, *, finished: int = 0, slots: int = 8, first: int = 0
) -> Working:
    samples = tuple(range(first, first + running))
    return Working(name, slots, finished, samples, (400,) * running)


def _known(*rest: float) -> Forecast:
    return Forecast(np.repeat(np.asarray(rest, np.float32)[:, None], len(LEVELS), axis=1))


def _pairs(moves: list[Move]) -> list[tuple[int, str, str]]:
    return [(m.sample, m.source, m.target) for m in moves]


# --- the matching -----------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(0, 2), st.data())
def test_the_matching_is_that_of_brute_force(rows: int, spare: int, data: st.DataObject) -> None:
    columns = rows + spare
    flat = data.draw(st.lists(st.integers(0, 9), min_size=rows * columns, max_size=rows * columns))
    costs = np.asarray(flat, float).reshape(rows, columns)
    found = cheapest_matching(costs)
    assert len(set(found.tolist())) == rows
    every = (sum(costs[r, c] for r, c in enumerate(p)) for p in permutations(range(columns), rows))
    assert costs[np.arange(rows), found].sum() == min(every)


# --- tau, as published ------------------------------------------------------------------------


def test_an_actor_past_tau_gives_up_what_is_unfinished() -> None:
    actors = [_actor("a", 2, finished=8), _actor("b", 5, finished=3, first=10)]
    assert _pairs(tau_rule(actors, profile())) == [(0, "a", "b"), (1, "a", "b")]


def test_an_actor_before_tau_keeps_its_samples() -> None:
    assert tau_rule([_actor("a", 4, finished=6), _actor("b", 2)], profile()) == []


def test_without_free_slots_samples_stay() -> None:
    actors = [_actor("a", 2, finished=8), _actor("b", 7, finished=1, first=10)]
    assert _pairs(tau_rule(actors, profile())) == [(0, "a", "b")]


def test_tau_never_sends_samples_to_an_actor_that_is_cut() -> None:
    actors = [_actor("a", 1, finished=9), _actor("b", 1, finished=9, first=10)]
    assert tau_rule(actors, profile()) == []


# --- RLHFuse's global cut ---------------------------------------------------------------------


def test_the_global_cut_gathers_the_tail_on_the_fullest_actors() -> None:
    actors = [_actor("a", 2), _actor("b", 5, first=10), _actor("c", 1, first=20)]
    moves = global_cut(actors, profile(), total=40)
    assert {m.target for m in moves} == {"b"}
    assert freed(actors, moves) == ["a", "c"]


def test_the_global_cut_waits_for_the_tail() -> None:
    assert global_cut([_actor("a", 5), _actor("b", 5)], profile(), total=40) == []


def test_the_global_cut_keeps_enough_kv() -> None:
    actors = [_actor("a", 2), _actor("b", 3, first=10), _actor("c", 1, first=20)]
    moves = global_cut(actors, profile(kv_tokens=1300), total=40)
    assert {m.source for m in moves} == {"c"}


# --- the benefit rule -------------------------------------------------------------------------


def test_an_actor_held_by_one_long_sample_is_emptied() -> None:
    actors = [_actor("a", 1), _actor("b", 3, first=10)]
    moves = benefit_rule(actors, _known(900, 1000, 800, 700), profile(), worth=Worth())
    assert _pairs(moves) == [(0, "a", "b")]
    assert freed(actors, moves) == ["a"]


def test_a_sample_about_to_end_is_left_alone() -> None:
    actors = [_actor("a", 1), _actor("b", 3, first=10)]
    assert benefit_rule(actors, _known(20, 1000, 800, 700), profile(), worth=Worth()) == []


def test_a_move_that_costs_more_than_it_saves_is_not_made() -> None:
    slow_path = profile(handover_bytes_per_second=1e6, prefill_seconds_per_token=1.0)
    actors = [_actor("a", 1), _actor("b", 3, first=10)]
    assert benefit_rule(actors, _known(900, 1000, 800, 700), slow_path, worth=Worth()) == []


def test_where_the_step_is_dear_its_end_is_not_put_off() -> None:
    actors = [_actor("a", 1), _actor("b", 1, first=10)]
    rest, dear = _known(1000, 900), Worth(actor=1.0, step=1000.0)
    assert benefit_rule(actors, rest, profile(), worth=Worth())
    assert benefit_rule(actors, rest, profile(), worth=dear) == []


def test_all_of_an_actor_moves_or_nothing() -> None:
    actors = [_actor("a", 3), _actor("b", 6, first=10)]  # only two slots are free
    assert benefit_rule(actors, _known(*[900] * 9), profile(), worth=Worth()) == []


def test_an_actor_that_received_is_not_emptied_in_turn() -> None:
    actors = [_actor("a", 1), _actor("b", 1, first=10), _actor("c", 1, first=20)]
    moves = benefit_rule(actors, _known(900, 900, 900), profile(), worth=Worth())
    assert {m.source for m in moves}.isdisjoint({m.target for m in moves})
    assert len(freed(actors, moves)) == 2


def test_kv_that_does_not_fit_is_not_moved() -> None:
    actors = [_actor("a", 1), _actor("b", 3, first=10)]
    tight = profile(kv_tokens=3900)
    assert benefit_rule(actors, _known(900, 1000, 800, 700), tight, worth=Worth()) == []


def test_the_way_of_the_kv_is_the_cheaper_one() -> None:
    actors = [_actor("a", 1), _actor("b", 3, first=10)]
    rest = _known(900, 1000, 800, 700)
    by_kv = benefit_rule(actors, rest, profile(), worth=Worth())
    anew = benefit_rule(actors, rest, profile(handover_bytes_per_second=0.0), worth=Worth())
    assert by_kv[0].how == "kv"
    assert by_kv[0].seconds == pytest.approx(400 * 36_864 / 3e9)
    assert anew[0].how == "recompute"


def test_one_actor_or_none_has_nowhere_to_go() -> None:
    assert benefit_rule([], _known(), profile(), worth=Worth()) == []
    assert benefit_rule([_actor("a", 1)], _known(900), profile(), worth=Worth()) == []


@settings(max_examples=30)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(1, 3000))
def test_no_target_gets_more_than_its_slots(running: list[int], rest: int) -> None:
    actors = [_actor(f"a{i}", n, finished=8 - n, first=10 * i) for i, n in enumerate(running)]
    known = _known(*[float(rest)] * sum(running))
    for moves in (
        benefit_rule(actors, known, profile(), worth=Worth()),
        tau_rule(actors, profile(), tau=0.5),
        global_cut(actors, profile(), total=1000),
    ):
        assert len({(m.source, m.sample) for m in moves}) == len(moves)
        for actor in actors:
            got = sum(m.target == actor.name for m in moves)
            assert len(actor.samples) + got <= actor.slots
