"""Both predictors on made-up lengths of the published structure, with the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.length_prediction import LIMIT, Outcome, play
from services.planner.core.prediction.blend import Blend
from services.planner.core.prediction.ewma import Ewma
from services.planner.simulate.lengths import Shares, draw

SEEDS = (11, 12, 13)
GROUPS = (3, 8)  # samples of a prompt: RLHFless's example, and what is usual
Played = dict[tuple[str, int], list[Outcome]]


@pytest.fixture(scope="module")
def played() -> Played:
    found: Played = {}
    for seed in SEEDS:
        for size in GROUPS:
            trace = draw(seed=seed, prompts=384, epochs=4, samples=size, limit=LIMIT)
            for name, make in (("ewma", Ewma), ("blend", Blend)):
                one = play(make(limit=LIMIT), trace, seed=seed)
                found.setdefault((name, size), []).append(one)
    return found


def _mean(outcomes: list[Outcome], when: str, figure: str, epochs: slice) -> float:
    found = [getattr(one, figure) for o in outcomes for one in getattr(o, when)[epochs]]
    return float(np.mean(found))


@pytest.mark.parametrize("size", GROUPS)
def test_blend_errs_less_than_ewma(played: Played, size: int) -> None:
    ours, theirs = played["blend", size], played["ewma", size]
    first, later = slice(0, 1), slice(1, None)
    assert _mean(ours, "start", "mae", first) < 0.8 * _mean(theirs, "start", "mae", first)
    assert _mean(ours, "start", "mae", later) < 0.95 * _mean(theirs, "start", "mae", later)


@pytest.mark.parametrize("size", GROUPS)
def test_blend_orders_answers_better_than_ewma(played: Played, size: int) -> None:
    ours, theirs = played["blend", size], played["ewma", size]
    for figure in ("rank", "tail_recall"):
        won = _mean(ours, "start", figure, slice(2, None))
        assert won > _mean(theirs, "start", figure, slice(2, None)) + 0.015, figure


@pytest.mark.parametrize("size", GROUPS)
def test_blend_covers_what_it_says(played: Played, size: int) -> None:
    outcomes = played["blend", size]
    assert abs(_mean(outcomes, "start", "coverage_p50", slice(1, None)) - 0.5) < 0.05
    assert abs(_mean(outcomes, "start", "coverage_p90", slice(1, None)) - 0.9) < 0.03


@pytest.mark.parametrize("size", GROUPS)
def test_siblings_help_inside_the_step(played: Played, size: int) -> None:
    outcomes, first = played["blend", size], slice(0, 1)
    blind, heard = (
        {name: _mean(outcomes, when, name, first) for name in ("mae", "rank", "tail_recall")}
        for when in ("blind", "heard")
    )
    assert heard["mae"] < 0.95 * blind["mae"]
    assert heard["rank"] > blind["rank"] + 0.1
    assert heard["tail_recall"] > blind["tail_recall"] + 0.03


@pytest.mark.parametrize("size", GROUPS)
def test_siblings_help_where_there_is_history_too(played: Played, size: int) -> None:
    outcomes, later = played["blend", size], slice(1, None)
    assert _mean(outcomes, "heard", "mae", later) < 0.99 * _mean(outcomes, "blind", "mae", later)
    assert _mean(outcomes, "heard", "rank", later) > _mean(outcomes, "blind", "rank", later) + 0.01


def test_a_trace_has_the_published_shares_and_quantiles() -> None:
    trace = draw(seed=5, prompts=4000, epochs=6, samples=6, limit=10**9)
    logs = np.log(trace.uncut)
    assert abs(np.exp(np.median(logs)) / 1160 - 1) < 0.15
    chance = logs.var(axis=2, ddof=1).mean() / logs.var()
    assert abs(chance - 0.261) < 0.03
    prompt = np.cov(logs[0].mean(axis=1), logs[5].mean(axis=1))[0, 1] / logs.var()
    assert abs(prompt - 0.648) < 0.04


def test_a_trace_is_the_same_for_all_who_draw_it() -> None:
    one, two = (draw(seed=3, prompts=5, epochs=2, samples=3, limit=100) for _ in range(2))
    np.testing.assert_array_equal(one.lengths, two.lengths)
    assert one.lengths.max() <= 100
    np.testing.assert_array_equal(one.censored, one.uncut > 100)


def test_shares_sum_to_one_whatever_chance_has() -> None:
    shares = Shares().with_chance(0.5)
    assert abs(shares.prompt + shares.policy + shares.both + shares.chance - 1) < 1e-9
