"""Tri-state scores, retries and the breaker."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Broken, Judged, Outcome, Unusable, Worth
from ebbtide.spec import Component, RewardSpec, RuleReward
from ebbtide.wire import (
    Error,
    Invalid,
    Part,
    PromptRef,
    Ref,
    SampleKey,
    Score,
    ScoreReady,
    ScoreRequest,
    Value,
)
from services.reward import core
from services.reward.core import Breaker, Crashed, Deaths, NoWorker, TimedOut

numbers = st.floats(-1e6, 1e6)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Worth, numbers, st.sampled_from(("", "format"))),
    st.builds(Unusable, st.just("why")),
    st.builds(Broken, st.just("OSError"), st.just("gone")),
)
judgements = st.lists(st.tuples(outcomes, st.floats(-1000, 1000)), min_size=1, max_size=5)


def components(*weights: float) -> tuple[Component, ...]:
    return tuple(
        RuleReward(type="exact", name=f"c{n}", weight=weight) for n, weight in enumerate(weights)
    )


def judged(*found: Outcome) -> Judged:
    return Judged(found, (0.0,) * len(found))


def test_the_total_is_the_weighted_sum_with_named_parts() -> None:
    score = core.score(components(2.0, -0.5), judged(Worth(1.0), Worth(3.0)))
    assert score == Value(0.5, (Part("c0", 1.0, 2.0), Part("c1", 3.0, -1.5)), "")


def test_the_first_fault_of_the_answer_is_named() -> None:
    score = core.score(components(1, 1), judged(Worth(1.0), Worth(0.0, fault="format")))
    assert isinstance(score, Value)
    assert (score.total, score.fault) == (1.0, "format")


@given(judgements)
def test_there_is_a_value_exactly_if_every_component_has_one(
    found: list[tuple[Outcome, float]],
) -> None:
    given_outcomes = [outcome for outcome, _ in found]
    score = core.score(components(*(weight for _, weight in found)), judged(*given_outcomes))
    kinds = {type(outcome) for outcome in given_outcomes}
    expected = Error if Broken in kinds else Invalid if Unusable in kinds else Value
    assert type(score) is expected


@given(judgements)
def test_the_parts_add_up_to_the_total(found: list[tuple[Outcome, float]]) -> None:
    score = core.score(components(*(weight for _, weight in found)), judged(*(o for o, _ in found)))
    if isinstance(score, Value):
        assert math.isclose(score.total, sum(p.weighted for p in score.parts), abs_tol=1e-3)


@pytest.mark.parametrize(("weight", "worth"), [(1000.0, 1e10), (1000.0, 1e308), (0.0, -1e308)])
def test_a_score_too_large_to_be_summed_up_is_invalid(weight: float, worth: float) -> None:
    score = core.score(components(weight), judged(Worth(worth)))
    assert isinstance(score, Invalid)
    assert "is beyond 1e+12" in score.why


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (TimedOut(), Value(0.0, (), "timeout")),
        (Crashed(), Value(0.0, (), "crash")),
        (NoWorker("no memory"), Error("NoWorker", "no memory")),
    ],
)
def test_a_lost_worker_is_the_answers_fault_only_if_the_answer_lost_it(
    verdict: core.Verdict, expected: Score
) -> None:
    assert core.score(components(1.0), verdict) == expected


def request(digest: str) -> ScoreRequest:
    ref = Ref("path", digest, 1)
    return ScoreRequest(SampleKey("u", 0, 0, 0), 1, ref, "p", PromptRef(ref, 0))


@given(st.text(max_size=8), st.integers(1, 100))
def test_the_wait_before_a_retry_grows_to_a_bound(digest: str, tries: int) -> None:
    due = min(core.FIRST_DELAY * 2 ** (tries - 1), core.LONGEST_DELAY)
    assert 0.5 * due <= core.delay(request(digest), tries) <= 1.5 * due


def test_retries_of_different_samples_do_not_march_in_step() -> None:
    assert len({core.delay(request(str(n)), 1) for n in range(50)}) == 50


# --- deaths -----------------------------------------------------------------------------------


def test_a_crash_is_the_answers_fault_only_where_others_are_judged() -> None:
    deaths = Deaths(limit=9)
    assert deaths.died(Crashed(-9)) == Error(
        "WorkerDied", "the reward ended its own worker (signal 9)"
    )
    deaths.judged()
    assert deaths.died(Crashed(3)) == Value(0.0, (), "crash")


def test_deaths_in_a_row_are_the_rewards_fault_and_end_the_scorer() -> None:
    deaths = Deaths(limit=3)
    for _ in range(2):
        deaths.died(Crashed(3))
    with pytest.raises(Refused, match=r"at 3 answers in a row \(last: exit status 3\)"):
        deaths.died(Crashed(3))


@given(st.lists(st.booleans()))
def test_nothing_ends_while_something_is_judged_now_and_then(judged: list[bool]) -> None:
    deaths = Deaths(limit=3)
    for found in judged:
        deaths.judged()
        if found:
            deaths.died(Crashed())


# --- breaker ----------------------------------------------------------------------------------


def opened(limit: int = 2) -> Breaker:
    """A breaker that opened at second 100 for 10 seconds."""
    breaker = Breaker(limit=limit, rest=10.0)
    for _ in range(limit):
        breaker.failed(100.0)
    return breaker


def test_it_opens_at_the_limit_of_errors_in_a_row() -> None:
    breaker = Breaker(limit=2, rest=10.0)
    for happened in (breaker.failed, breaker.failed):
        assert breaker.allowance(100.0, in_flight=3, capacity=8) == 5
        happened(100.0)
    assert breaker.open
    assert breaker.allowance(109.9, in_flight=0, capacity=8) == 0


def test_a_success_between_errors_starts_the_count_anew() -> None:
    breaker = Breaker(limit=2, rest=10.0)
    breaker.failed(100.0)
    breaker.succeeded()
    breaker.failed(100.0)
    assert not breaker.open


def test_after_its_rest_it_lets_one_through_at_a_time() -> None:
    breaker = opened()
    assert breaker.allowance(110.0, in_flight=0, capacity=8) == 1
    assert breaker.allowance(110.0, in_flight=1, capacity=8) == 0


def test_a_trial_that_succeeds_closes_it() -> None:
    breaker = opened()
    breaker.succeeded()
    assert breaker.allowance(110.0, in_flight=0, capacity=8) == 8


def test_a_trial_that_fails_doubles_the_rest() -> None:
    breaker = opened()
    breaker.failed(110.0)
    assert breaker.allowance(129.9, in_flight=0, capacity=8) == 0
    assert breaker.allowance(130.0, in_flight=0, capacity=8) == 1


def test_errors_of_work_that_was_in_flight_do_not_lengthen_the_rest() -> None:
    breaker = opened()
    breaker.failed(105.0)
    assert breaker.allowance(110.0, in_flight=0, capacity=8) == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=50), st.integers(1, 5))
def test_intake_stops_only_after_a_full_row_of_errors(
    events: list[tuple[float, bool]], limit: int
) -> None:
    breaker, now, row = Breaker(limit=limit, rest=10.0), 0.0, 0
    for seconds, good in events:
        now += seconds
        row = 0 if good else row + 1
        if good:
            breaker.succeeded()
        else:
            breaker.failed(now)
        assert breaker.open == (row >= limit)
        assert breaker.allowance(now + 161.0, in_flight=0, capacity=9) >= 1


# --- names ------------------------------------------------------------------------------------


def ready(score: Score) -> ScoreReady:
    return ScoreReady(SampleKey("u", 1, 2, 3), "f" * 64, score, "s", 0.1, "pod")


def test_a_repeated_value_is_absorbed_and_an_error_never() -> None:
    value, error = ready(Value(1.0, ())), ready(Error("OSError"))
    assert core.dedup_id(value, 1, "a", 1) == core.dedup_id(value, 1, "b", 2)
    ids = {core.dedup_id(r, 1, "a", n) for r, n in ((value, 1), (error, 1), (error, 2))}
    assert len(ids) == 3


def test_the_next_attempt_hears_a_value_that_the_last_one_was_told() -> None:
    value = ready(Value(1.0, ()))
    assert core.dedup_id(value, 1, "a", 1) != core.dedup_id(value, 2, "a", 2)


def test_the_digest_changes_with_the_components_and_the_versions() -> None:
    one = RewardSpec(components=components(1.0))
    two = RewardSpec(components=components(2.0))
    digests = {core.scorer_digest(spec, {"v": v}) for spec in (one, two) for v in ("1", "2")}
    assert len(digests) == 4
    assert core.scorer_digest(one, {"v": "1"}) in digests


def test_the_digest_does_not_change_with_what_does_not_shape_a_score() -> None:
    one = RewardSpec(components=components(1.0))
    assert core.scorer_digest(one, {}) == core.scorer_digest(
        one.model_copy(update={"workers": 7}), {}
    )
