"""Whether a prefill service pays, by what actors computed twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.planning.prefilling import Prompts, Rates, judge

SPLIT = Prompts(by_actors=3000, imported=0, distinct=1000, most=3000, filling=30.0, seconds=10.0)
WHOLE = SPLIT._replace(by_actors=1000)
CHEAP = Rates(compute=0.01, take_over=0.0, service=0.5)
"""At which SPLIT saves 20 s of an actor a step, and the service costs 5 s."""

steps = st.lists(
    st.builds(
        Prompts,
        by_actors=st.integers(0, 10**6),
        imported=st.integers(0, 10**6),
        distinct=st.integers(0, 10**6),
        most=st.integers(0, 10**6),
        filling=st.floats(0, 1e3),
        seconds=st.floats(0, 1e3),
    ),
    min_size=1,
    max_size=3,
)


def test_it_pays_where_actors_compute_much_more_than_once() -> None:
    found = judge([SPLIT], CHEAP, now=False)
    assert (found.service, found.saved, found.spent) == (True, 20.0, 5.0)
    assert "2000 prompt tokens" in found.reason
    assert "20.00 s of an actor, and cost 5.00 s" in found.reason


@pytest.mark.parametrize(
    ("step", "rates", "why"),
    [
        (WHOLE, CHEAP, "nothing is computed twice"),
        (SPLIT._replace(seconds=100.0), CHEAP, "it is held for long"),
        (SPLIT, CHEAP._replace(service=5.0), "it is dear"),
        (SPLIT, CHEAP._replace(take_over=0.01), "hand-overs take as long as computing"),
        (SPLIT, CHEAP._replace(compute=0.001), "prompts are computed fast"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_does_not_pay(step: Prompts, rates: Rates, why: str) -> None:
    for now in (True, False):
        assert not judge([step], rates, now=now).service, why


def test_what_is_resumed_is_no_duplicate() -> None:
    """Texts that go on elsewhere are computed anew with a service too."""
    assert WHOLE._replace(by_actors=9000, most=1000).twice == 0
    assert SPLIT._replace(by_actors=9000).twice == 2000


def test_with_the_service_it_is_judged_by_what_actors_would_compute_without() -> None:
    served = SPLIT._replace(by_actors=0, imported=3000)
    assert served.twice == SPLIT.twice
    assert judge([served], CHEAP, now=True).service


@pytest.mark.parametrize("now", [True, False])
def test_a_small_gain_changes_nothing(now: bool) -> None:
    for service in (1.7, 2.0, 2.3):
        assert judge([SPLIT], CHEAP._replace(service=service), now=now).service is now
    assert not judge([SPLIT], CHEAP._replace(service=2.8), now=now).service
    assert judge([SPLIT], CHEAP._replace(service=1.5), now=now).service


@pytest.mark.parametrize("now", [True, False])
def test_without_figures_it_stays_as_it_is_and_says_why(now: bool) -> None:
    nothing, unknown = judge([], CHEAP, now=now), judge([SPLIT], Rates(None, 0.0, 0.0), now=now)
    assert nothing.service is unknown.service is now
    assert "no step has been counted" in nothing.reason
    assert "not known yet" in unknown.reason


def test_the_mean_of_the_steps_counts() -> None:
    idle = WHOLE._replace(seconds=100.0)
    assert not judge([SPLIT, idle, idle], CHEAP, now=False).service
    assert judge([SPLIT, SPLIT, WHOLE], CHEAP, now=False).service


@given(steps, st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_whoever_has_it_keeps_it_longer_than_others_get_it(
    found: list[Prompts], compute: float, take_over: float, service: float
) -> None:
    rates = Rates(compute, take_over, service)
    has, gets = judge(found, rates, now=True), judge(found, rates, now=False)
    assert has.service >= gets.service
    assert (has.saved, has.spent) == (gets.saved, gets.spent)
