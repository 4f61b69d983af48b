"""What becomes of an actor without work, by price and time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.planning.idling import Takes, choose, early, outstays, weigh

SLOW = Takes(start=60.0, wake=2.0, share=0.2)
times = st.floats(0.0, 1e5)
takes = st.builds(Takes, st.floats(0.0, 300.0), st.floats(0.0, 60.0), st.floats(0.0, 1.0))


@pytest.mark.parametrize(
    ("until", "takes", "choice"),
    [
        (3.0, SLOW, "hold"),
        (50.0, SLOW, "park"),
        (300.0, SLOW, "park"),
        (1000.0, SLOW, "release"),
        (300.0, SLOW._replace(share=0.5), "release"),
        (50.0, SLOW._replace(share=1.0), "hold"),
        (300.0, SLOW._replace(share=1.0), "release"),
        (50.0, SLOW._replace(start=2.0), "release"),
        (50.0, SLOW._replace(wake=60.0), "hold"),
        (math.inf, SLOW._replace(share=0.0), "release"),
        (1000.0, SLOW._replace(share=0.0), "park"),
    ],
    ids=str,
)
def test_the_cheapest_is_chosen(until: float, takes: Takes, choice: str) -> None:
    assert choose(until, takes, room=True) == choice


def test_without_room_it_is_held_or_let_go() -> None:
    assert choose(50.0, SLOW, room=False) == "hold"
    assert choose(300.0, SLOW, room=False) == "release"


def test_what_each_choice_costs() -> None:
    costs = weigh(200.0, Takes(start=8.0, wake=4.0, share=0.5))
    assert early(8.0) == 10.5
    assert early(4.0) == 5.5
    assert costs == {"hold": 200.0, "park": 0.5 * 194.5 + 5.5, "release": 10.5}


@given(times, takes, st.booleans())
def test_nothing_that_is_open_costs_less_than_the_choice(
    until: float, takes: Takes, room: bool
) -> None:
    costs = weigh(until, takes)
    chosen = choose(until, takes, room=room)
    assert all(costs[chosen] <= costs[one] for one in costs if room or one != "park")


@given(times, takes)
def test_a_dedicated_gpu_is_never_parked(until: float, takes: Takes) -> None:
    assert choose(until, takes._replace(share=1.0), room=True) != "park"


@given(times, takes)
def test_whoever_was_just_parked_stays(until: float, takes: Takes) -> None:
    if choose(until, takes, room=True) == "park":
        assert not outstays(until, takes, parked=0.0)


def test_one_that_nobody_needs_is_let_go_once_it_has_cost_a_start() -> None:
    assert not outstays(100.0, SLOW, parked=150.0)
    assert outstays(100.0, SLOW, parked=300.0)
    assert not outstays(50.0, SLOW, parked=1e6), "too late to start it anew"
    assert outstays(math.inf, SLOW._replace(share=0.0), parked=0.0)
