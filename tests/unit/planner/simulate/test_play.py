from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from services.planner.simulate.play import play
from services.planner.simulate.policies import (
    OURS,
    POLICIES,
    RLHFLESS,
    SPOTTED,
    STATIC,
    TAILED,
    Policy,
)
from services.planner.simulate.results import Inputs, Results, mean, run_seed, savings
from tests.unit.planner.simulate import small

EVERY = [*POLICIES, TAILED, SPOTTED]


@pytest.mark.parametrize("policy", EVERY, ids=lambda policy: policy.name)
def test_every_policy_plays_every_step_and_its_account_adds_up(policy: Policy) -> None:
    case = small.case()
    found = play(case, policy)
    assert [one.step for one in found] == list(range(case.order.steps))
    for one in found:
        causes = one.busy + one.idle + one.loading + one.draining + one.wasted
        assert causes == pytest.approx(one.held, rel=0.02)
        assert one.step_seconds >= one.decode_seconds


def test_the_same_seed_gives_every_policy_the_same_answers() -> None:
    first, second = small.case(3), small.case(3)
    assert np.array_equal(first.trace.lengths, second.trace.lengths)
    assert not np.array_equal(first.trace.lengths, small.case(4).trace.lengths)


def test_release_on_finish_costs_less_at_the_same_time() -> None:
    case = small.case()
    held, released = play(case, STATIC), play(case, replace(STATIC, released="finish"))
    assert mean(released, "decode_seconds") == pytest.approx(mean(held, "decode_seconds"))
    assert mean(released, "decoding") < mean(held, "decoding")


def test_the_engines_prefix_cache_computes_a_prompt_once() -> None:
    case = small.case()
    plain = mean(play(case, replace(STATIC, cache="none")), "prefill_tokens")
    cached = mean(play(case, STATIC), "prefill_tokens")
    assert plain == pytest.approx(3 * cached)


def test_rlhfless_spends_more_for_time_as_lambda_rises() -> None:
    case = small.case(work={**small.DOCUMENT["work"], "prompts": 64, "promptsPerStep": 64})
    slow, fast = (play(case, replace(RLHFLESS, weight=w))[1:] for w in (0.05, 0.99))
    assert mean(slow, "decoding") < mean(fast, "decoding")
    assert mean(slow, "decode_seconds") > mean(fast, "decode_seconds")


def test_ours_spends_more_as_time_is_worth_more() -> None:
    case = small.case(work={**small.DOCUMENT["work"], "prompts": 64, "promptsPerStep": 64})
    cheap, dear = (replace(case, site=replace(case.site, hour_worth=w)) for w in (0.0, 2000.0))
    assert mean(play(cheap, OURS), "decoding") < mean(play(dear, OURS), "decoding")


def test_partial_rollouts_carry_tokens_and_redo_nothing() -> None:
    partial = next(p for p in POLICIES if p.name == "partial")
    found = play(small.case(), partial)
    assert sum(one.wasted for one in found) == 0
    assert mean(found, "decode_seconds") < mean(play(small.case(), STATIC), "decode_seconds")


def test_tail_batching_throws_tokens_away() -> None:
    packer = next(p for p in POLICIES if p.name == "rollpacker")
    assert sum(one.wasted for one in play(small.case(), packer)) > 0


def test_interrupted_spot_actors_lose_no_sample_but_time() -> None:
    calm = small.case(spot={**small.DOCUMENT["spot"], "interruptionsPerHour": 0})
    wild = small.case(spot={**small.DOCUMENT["spot"], "interruptionsPerHour": 900, "notice": 0})
    assert mean(play(wild, SPOTTED), "decode_seconds") > mean(play(calm, SPOTTED), "decode_seconds")
    assert mean(play(wild, SPOTTED), "moves") > mean(play(calm, SPOTTED), "moves")


def test_steps_without_any_spot_actor_are_played_on_demand() -> None:
    none = small.case(spot={**small.DOCUMENT["spot"], "available": 0}, tail=None)
    every = small.case(spot={**small.DOCUMENT["spot"], "interruptionsPerHour": 0}, tail=None)
    dear, cheap = (play(case, SPOTTED)[1:] for case in (none, every))
    assert mean(dear, "decode_dollars") > 1.5 * mean(cheap, "decode_dollars")


def test_visible_cold_starts_delay_and_hidden_ones_do_not() -> None:
    released = replace(STATIC, released="finish")
    actors = {**small.DOCUMENT["actors"], "start": {"seconds": 30.0, "hidden": False}}
    cold, warm = play(small.case(actors=actors), released), play(small.case(), released)
    assert cold[0].decode_seconds == pytest.approx(warm[0].decode_seconds)
    assert cold[1].decode_seconds > warm[1].decode_seconds + 25


def test_ours_keeps_its_actors_where_a_start_takes_longer_than_the_gap() -> None:
    actors = {**small.DOCUMENT["actors"], "start": {"seconds": 60.0, "hidden": False}}
    found = play(small.case(actors=actors), OURS)
    assert max(one.loading for one in found) == 0


def test_without_prices_gpu_seconds_are_compared_and_dollars_stay_unknown() -> None:
    actors = {k: v for k, v in small.DOCUMENT["actors"].items() if k != "perGpuHour"}
    found = play(small.case(actors=actors, tail=None, spot=None), OURS)
    assert all(one.dollars is None and one.worth == one.held + one.others for one in found)


def test_one_prompt_and_more_actors_than_samples_are_played() -> None:
    work = {"prompts": 1, "promptsPerStep": 1, "groupSize": 1, "limit": 64, "epochs": 2}
    for policy in EVERY:
        assert 1 <= len(play(small.case(work=work), policy)) <= 2


def test_savings_by_cause_add_up_to_the_whole() -> None:
    inputs = Inputs(small.scenario())
    case = small.case()
    whole = mean(play(case, STATIC), "held") - mean(play(case, OURS), "held")
    assert sum(one.gpu_seconds for one in savings(inputs, [0])) == pytest.approx(whole)


def test_shares_of_the_oracle_are_0_for_static_and_1_for_itself() -> None:
    inputs = Inputs(small.scenario())
    names = [p for p in POLICIES if p.name in ("static", "ours", "oracle")]
    found = Results(inputs.scenario, [run_seed(inputs, seed, names) for seed in (0, 1)])
    assert found.oracle_share("static").mean == 0
    assert found.oracle_share("oracle").mean == 1
    assert 0 < found.oracle_share("ours").mean <= 1
