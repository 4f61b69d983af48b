"""Seconds by cause."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.reports import Cause
from ebbtide.wire import EngineStats, Heartbeat, Spent, pack_ints
from services.planner.core.cost import Meter, actor_cause, spent


def a_beat(state: str, running: int) -> Heartbeat:
    rows = pack_ints([(1, 1, n, 0) for n in range(running)])
    return Heartbeat("a", "i", 1, None, None, state, rows, (), EngineStats())


@pytest.mark.parametrize(
    ("state", "running", "cause"),
    [
        ("loading", 0, "loading"),
        ("serving", 2, "busy"),
        ("serving", 0, "idle"),
        ("empty", 0, "idle"),
        ("draining", 1, "draining"),
        ("asleep", 0, "parked"),
    ],
)
def test_a_heartbeat_tells_the_cause(state: str, running: int, cause: str) -> None:
    assert actor_cause(a_beat(state, running)) == cause


def test_stretches_end_where_the_next_begins() -> None:
    meter = Meter()
    meter.mark("decode", "a", "loading", 0.0)
    meter.mark("decode", "a", "busy", 2.0)
    meter.mark("decode", "a", "busy", 3.0)
    done = meter.cut(5.0)
    found = [(s.cause, s.start, s.end) for s in done["decode", "a"]]
    assert found == [("loading", 0.0, 2.0), ("busy", 2.0, 5.0)]


def test_what_goes_on_counts_from_the_cut() -> None:
    meter = Meter()
    meter.mark("learner", "l", "idle", 0.0)
    meter.cut(4.0)
    assert list(spent(1, meter.cut(5.0), {})) == [Spent(1, "learner", "l", "idle", 1.0)]


def test_a_pod_that_is_gone_costs_nothing_more() -> None:
    meter = Meter()
    meter.mark("decode", "a", "idle", 0.0)
    meter.stop("decode", "a", 3.0)
    assert [s.end for s in meter.cut(10.0)["decode", "a"]] == [3.0]


def test_a_pod_starts_up_from_its_start_until_it_is_first_heard() -> None:
    meter = Meter()
    meter.began("learner", "0", -2.0)
    assert meter.open_seconds(1.0) == {("learner", "startup"): 3.0}
    meter.expire(1.0, after=0.5)
    meter.mark("learner", "0", "loading", 3.0)
    found = [(s.cause, s.start, s.end) for s in meter.cut(4.0)["learner", "0"]]
    assert found == [("startup", -2.0, 3.0), ("loading", 3.0, 4.0)]


def test_news_of_a_start_may_come_after_the_first_beat() -> None:
    meter = Meter()
    meter.mark("planner", "p", "busy", 1.0)
    meter.began("planner", "p", -2.0)
    found = [(s.cause, s.start, s.end) for s in meter.cut(4.0)["planner", "p"]]
    assert found == [("startup", -2.0, 1.0), ("busy", 1.0, 4.0)]


def test_wasted_tokens_turn_their_share_of_busy_time() -> None:
    meter = Meter()
    meter.mark("decode", "a", "busy", 0.0)
    meter.drew("a", 75)
    meter.wasted("a", 25)
    found = {r.cause: r.seconds for r in spent(0, meter.cut(8.0), meter.waste_shares())}
    assert found == {"busy": 6.0, "wasted": 2.0}
    assert meter.waste_shares() == {}


def test_a_pod_that_is_heard_no_more_ends_where_it_was_last_heard() -> None:
    meter = Meter()
    meter.mark("reward", "s", "idle", 0.0)
    meter.mark("reward", "s", "idle", 3.0)
    meter.expire(9.0, after=5.0)
    assert [s.end for s in meter.cut(10.0)["reward", "s"]] == [3.0]
    assert meter.open_seconds(20.0) == {}


def test_seconds_under_way_are_known_before_the_cut() -> None:
    meter = Meter()
    meter.mark("decode", "a", "idle", 0.0)
    meter.mark("decode", "b", "busy", 1.0)
    assert meter.open_seconds(4.0) == {("decode", "idle"): 4.0, ("decode", "busy"): 3.0}


# --- the law: no gap, no overlap ----------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["busy", "idle", "loading", "cut", "crash"]), st.floats(0.1, 10.0)),
    max_size=30,
)


@given(STEPS)
def test_causes_cover_each_planners_time_with_a_pod_once_and_only_deaths_leave_gaps(
    steps: list[tuple[str, float]],
) -> None:
    meter, now, since = Meter(), 0.0, None
    found: list[tuple[float, float]] = []
    heard: list[tuple[float, float]] = []  # from the first beat, or the last commit, to a commit
    for what, seconds in [*steps, ("cut", 1.0)]:
        now += seconds
        if what == "cut":
            done = meter.cut(now).get(("decode", "a"), [])
            found += [(one.start, one.end) for one in done]
            heard += [] if since is None else [(since, now)]
            since = None if since is None else now
        elif what == "crash":
            meter, since = Meter(), None
        else:
            since = now if since is None else since
            meter.mark("decode", "a", cast("Cause", what), now)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert sum(b - a for a, b in found) == pytest.approx(sum(b - a for a, b in heard))
    assert all(any(a <= c and d <= b for a, b in heard) for c, d in found)
