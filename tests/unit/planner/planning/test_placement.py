from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.planning.placement import (
    Distances,
    Level,
    Spot,
    affinity,
    by_distance,
    check,
    place,
)

HOST, DOMAIN, ZONE = (level.label for level in Distances().levels)
LEARNER = {HOST: "n1", DOMAIN: "d1", ZONE: "z1"}
SPOTS = [
    Spot("far", {HOST: "n9", DOMAIN: "d9", ZONE: "z9"}),
    Spot("zone", {HOST: "n3", DOMAIN: "d2", ZONE: "z1"}),
    Spot("node", dict(LEARNER)),
    Spot("domain", {HOST: "n2", DOMAIN: "d1", ZONE: "z1"}),
]


def test_the_heaviest_group_stands_nearest() -> None:
    assert place([1.0, 9.0, 5.0], SPOTS, LEARNER, Distances()) == ["zone", "node", "domain"]


def test_a_missing_label_agrees_with_nothing() -> None:
    assert Distances().between({}, {}) == 3.0
    assert Distances().between({ZONE: "z1"}, LEARNER) == 2.0


def test_measured_distances_replace_the_plain_order() -> None:
    measured = check(Distances((Level("rack", 0.3),), beyond=8.0))
    assert measured.between({"rack": "a"}, {"rack": "a"}) == 0.3
    assert measured.between({"rack": "a"}, {"rack": "b"}) == 8.0


def test_distances_that_fall_are_refused() -> None:
    with pytest.raises(Refused, match="rise"):
        check(Distances((Level("rack", 5.0),), beyond=1.0))


def test_too_few_places_are_refused() -> None:
    with pytest.raises(Refused, match="5 groups need"):
        place([1.0] * 5, SPOTS, LEARNER, Distances())


def test_new_actors_prefer_the_learners_node_then_its_domain() -> None:
    wanted = affinity({HOST: "n1", ZONE: "z1"}, Distances())
    assert wanted == [(HOST, "n1", 100), (ZONE, "z1", 60)]


@given(st.lists(st.floats(0, 100), max_size=4))
def test_a_heavier_group_is_never_farther(loads: list[float]) -> None:
    order = [spot.name for spot in by_distance(SPOTS, LEARNER, Distances())]
    names = place(loads, SPOTS, LEARNER, Distances())
    assert len(set(names)) == len(loads)
    ranks = [order.index(name) for name in names]
    assert all(
        ranks[a] < ranks[b]
        for a in range(len(loads))
        for b in range(len(loads))
        if loads[a] > loads[b]
    )
