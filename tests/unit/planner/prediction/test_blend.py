from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.prediction.blend import Blend
from services.planner.core.prediction.ewma import Ewma
from services.planner.core.prediction.forecast import Forecast
from services.planner.core.prediction.predictor import Observation, Predictor, Queries

LIMIT = 4096

observations = st.lists(
    st.builds(
        Observation,
        prompt_id=st.sampled_from(["a", "b", "c", "d"]),
        prompt_tokens=st.integers(0, 3000),
        task=st.sampled_from(["", "math", "code"]),
        step=st.integers(0, 3),
        group=st.integers(0, 5),
        length=st.integers(0, LIMIT),
        censored=st.booleans(),
    ),
    max_size=30,
)
makers = pytest.mark.parametrize("make", [Blend, Ewma])


def _ask(
    predictor: Predictor,
    step: int,
    *ids: str,
    rows: list[int] | None = None,
    done: list[int] | None = None,
    tokens: int = 100,
) -> Forecast:
    count = len(ids)
    return predictor.forecast(
        Queries(
            step,
            ids,
            [""] * count,
            np.full(count, tokens, dtype=np.int32),
            np.arange(count, dtype=np.int32),
            np.arange(count) if rows is None else np.array(rows),
            None if done is None else np.array(done, dtype=np.int32),
        )
    )


def _tell(
    predictor: Predictor,
    step: int,
    prompt: str,
    *lengths: int,
    group: int = 0,
    cut: int = LIMIT,
    told: bool = True,
) -> None:
    for length in lengths:
        known = told and length > cut
        predictor.observe(Observation(prompt, 100, "", step, group, min(length, cut), known))


def _crowd(
    predictor: Predictor,
    step: int,
    seed: int,
    *,
    cut: int = LIMIT,
    scale: float = 1.0,
    told: bool = True,
) -> None:
    """One step: 8 answers to each of 200 prompts, whose places are the same for every seed."""
    random, places = np.random.default_rng(seed), np.random.default_rng(99)
    for number in range(200):
        logs = 6.0 + places.standard_normal() + 0.5 * random.standard_normal(8)
        lengths = (scale * np.exp(logs)).astype(int).tolist()
        _tell(predictor, step, f"p{number}", *lengths, group=number, cut=cut, told=told)
    predictor.end_step(step)


@makers
@given(seen=observations, peek=st.integers(0, 30))
def test_the_same_answers_in_the_same_order_give_the_same_state(
    make: type[Blend | Ewma], seen: list[Observation], peek: int
) -> None:
    straight, looked_at = make(limit=LIMIT), make(limit=LIMIT)
    for number, one in enumerate(seen):
        straight.observe(one)
        looked_at.observe(one)
        if number == peek:
            _ask(looked_at, one.step, "a", "x", rows=[0, 0, 1], done=[5, 0, 9])
            looked_at.load(looked_at.dump())
    for predictor in (straight, looked_at):
        predictor.end_step(9)
    assert straight.dump() == looked_at.dump()


@makers
@given(seen=observations)
@settings(max_examples=50)
def test_a_loaded_predictor_says_what_the_dumped_one_says(
    make: type[Blend | Ewma], seen: list[Observation]
) -> None:
    told, loaded = make(limit=LIMIT), make(limit=LIMIT)
    for one in seen:
        told.observe(one)
    loaded.load(told.dump())
    for step in (3, 9):
        said, again = (
            _ask(p, step, "a", "b", "x", done=[7, 0, 4000]).quantiles for p in (told, loaded)
        )
        np.testing.assert_array_equal(said, again)
        assert np.all(np.isfinite(said))
        assert said.max() <= LIMIT


def test_nothing_seen_is_a_wide_guess() -> None:
    quantiles = _ask(Blend(limit=LIMIT), 0, "a").quantiles[0]
    assert quantiles[0] < LIMIT / 10
    assert quantiles[-1] > LIMIT / 2


def test_a_new_prompt_is_expected_like_the_others_of_its_size() -> None:
    blend = Blend(limit=LIMIT)
    for number in range(200):
        blend.observe(Observation(f"s{number}", 16, "", 0, number, 100))
        blend.observe(Observation(f"l{number}", 600, "", 0, 200 + number, 1000))
    short, long = (_ask(blend, 1, "new", tokens=tokens).at(0.5)[0] for tokens in (16, 600))
    assert 80 < short < 200
    assert 700 < long < 1100


def test_tasks_are_told_apart() -> None:
    blend = Blend(limit=LIMIT)
    for number in range(400):
        task, length = ("code", 1000) if number % 2 else ("math", 100)
        blend.observe(Observation(f"p{number}", 50, task, 0, number, length))
    done = np.arange(2, dtype=np.int32)
    asked = Queries(1, ["x", "y"], ["math", "code"], np.array([50, 50]), done, np.arange(2))
    math, code = blend.forecast(asked).at(0.5)
    assert math < 200
    assert code > 600


def test_history_narrows_the_forecast_to_the_prompt() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    _tell(blend, 1, "long", *[2000] * 8)
    _tell(blend, 1, "short", *[60] * 8, group=1)
    blend.end_step(1)
    quantiles = _ask(blend, 2, "long", "short", "new").quantiles
    assert quantiles[0, 2] > 1000
    assert quantiles[1, 2] < 120
    widths = quantiles[:, 4] / quantiles[:, 0]
    assert widths[0] < widths[2] / 2


def test_one_answer_moves_the_forecast_less_than_many() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    _tell(blend, 1, "once", 3000)
    _tell(blend, 1, "often", *[3000] * 32, group=1)
    blend.end_step(1)
    once, often = _ask(blend, 2, "once", "often").at(0.5)
    assert once < 0.8 * often


def test_ended_siblings_move_their_group_alone() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    before = _ask(blend, 1, "x", "y").at(0.5)
    _tell(blend, 1, "x", *[2500] * 4)
    after = _ask(blend, 1, "x", "y").at(0.5)
    assert after[0] > 2 * before[0]
    assert after[1] == before[1]


def test_siblings_are_forgotten_with_their_step() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    _tell(blend, 1, "x", *[2500] * 4)
    blend.end_step(1)
    other = _ask(blend, 2, "y").at(0.5)[0]  # group 0 of the next step is another prompt's
    assert other < 1200


def test_a_first_finish_is_short_if_the_others_run_on() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    _tell(blend, 1, "x", 300)
    naive = _ask(blend, 1, "x", rows=[0] * 7).at(0.5)[0]
    aware = _ask(blend, 1, "x", rows=[0] * 7, done=[300] * 7).at(0.5)[0]
    assert aware > 1.2 * naive


def test_a_lone_sample_counts_its_own_tokens_once() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    alone = _ask(blend, 1, "x", done=[700]).quantiles
    np.testing.assert_array_equal(alone, _ask(blend, 1, "x").quantiles)
    assert _ask(blend, 1, "x", rows=[0, 0], done=[700, 700]).at(0.5)[0] > 1.2 * alone[0, 2]


def test_cut_answers_do_not_pull_the_tail_down() -> None:
    whole, cut, naive = (Blend(limit=LIMIT) for _ in range(3))
    for step in range(4):
        _crowd(whole, step, step)
        _crowd(cut, step, step, cut=900)
        _crowd(naive, step, step, cut=900, told=False)
    ids = [f"p{number}" for number in range(200)]
    tails = [np.quantile(_ask(one, 4, *ids).at(0.9), 0.9) for one in (whole, cut, naive)]
    assert tails[1] > 0.85 * tails[0]
    assert tails[2] < 0.7 * tails[0]


def test_a_prompt_that_is_always_cut_is_expected_at_the_limit() -> None:
    blend = Blend(limit=LIMIT)
    for step in range(3):
        _tell(blend, step, "endless", *[LIMIT + 1] * 8)
        _tell(blend, step, "usual", *[400] * 8, group=1)
    endless, usual = _ask(blend, 3, "endless", "usual").at(0.9)
    assert endless > 0.99 * LIMIT
    assert usual < 1000


def test_the_forecast_follows_lengths_that_grow() -> None:
    still, growing = Blend(limit=LIMIT), Blend(limit=LIMIT)
    for step in range(6):
        _crowd(still, step, step)
        _crowd(growing, step, step, scale=1.15**step)
    ids = [f"p{number}" for number in range(200)]
    ratio = _ask(growing, 6, *ids).at(0.5) / _ask(still, 6, *ids).at(0.5)
    assert 1.6 < np.median(ratio) < 2.3  # 1.15**5 is 2.0


def test_equal_lengths_are_expected_again() -> None:
    blend = Blend(limit=LIMIT)
    for step in range(5):
        for number in range(50):
            _tell(blend, step, f"p{number}", *[77] * 8, group=number)
    quantiles = _ask(blend, 5, "p1").quantiles[0]
    assert abs(quantiles[2] - 77) < 4
    assert quantiles[4] < 100


def test_the_least_recently_seen_prompts_make_room() -> None:
    blend = Blend(limit=LIMIT, capacity=100)
    for number in range(300):
        _tell(blend, number // 30, f"p{number}", 50, 50, 50, group=number)
    blend.end_step(10)
    assert len(blend._history) <= 100
    known = blend._history.find([f"p{number}" for number in range(300)]) >= 0
    assert known[-30:].all()
    assert not known[:180].any()


@makers
@pytest.mark.parametrize("field", ["length", "prompt_tokens", "step", "group"])
def test_numbers_below_zero_are_refused(make: type[Blend | Ewma], field: str) -> None:
    wrong = msgspec.structs.replace(Observation("a", 1, "", 0, 0, 5), **{field: -1})
    with pytest.raises(Refused, match="0"):
        make(limit=LIMIT).observe(wrong)


@makers
def test_no_sample_asked_is_no_forecast(make: type[Blend | Ewma]) -> None:
    assert len(_ask(make(limit=LIMIT), 0)) == 0


@makers
@pytest.mark.parametrize("limit", [1, 2, 3, 1_000_000])
def test_any_limit_holds(make: type[Blend | Ewma], limit: int) -> None:
    predictor = make(limit=limit)
    _tell(predictor, 0, "a", 1, limit, cut=limit)
    quantiles = _ask(predictor, 1, "a", "b").quantiles
    assert quantiles.min() >= 1
    assert quantiles.max() <= limit


def test_cut_siblings_say_longer_not_this_long() -> None:
    cut, ended = Blend(limit=LIMIT), Blend(limit=LIMIT)
    for one, limit in ((cut, 899), (ended, LIMIT)):
        _crowd(one, 0, 1)
        _tell(one, 1, "x", *[900] * 4, cut=limit)
    assert _ask(cut, 1, "x").at(0.5)[0] > 1.2 * _ask(ended, 1, "x").at(0.5)[0]


def test_a_running_sample_tells_its_siblings_and_not_itself() -> None:
    blend = Blend(limit=LIMIT)
    _crowd(blend, 0, 1)
    before = _ask(blend, 1, "x").at(0.5)[0]
    longer, starter = _ask(blend, 1, "x", rows=[0, 0], done=[2500, 1]).at(0.5)
    assert longer < 1.3 * before
    assert starter > 1.6 * before


def test_prompts_not_asked_lately_follow_the_level_of_the_others() -> None:
    blend = Blend(limit=LIMIT)
    for number in range(60):
        _tell(blend, 0, f"rare-{number}", *[200, 300, 400], group=number)
    for step in range(6):
        for number in range(60):
            lengths = [200, 300, 400] if step == 0 else [400, 600, 800]
            _tell(blend, step, f"often-{number}", *lengths, group=60 + number)
    rare = _ask(blend, 6, *[f"rare-{number}" for number in range(60)]).at(0.5)
    assert 520 < np.median(rare) < 680  # 577 is right; 460 without the level
