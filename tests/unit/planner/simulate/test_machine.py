from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.planning.profile import make_profile
from services.planner.core.planning.rollout_time import replayed_seconds
from services.planner.simulate.calibration import computed_profile
from services.planner.simulate.machine import Job, Machine, Table

PROFILE = computed_profile("qwen2.5-3b", "l40s")
lengths_of = st.lists(st.integers(1, 3000), min_size=1, max_size=20)


def jobs(lengths: list[int], prompt: float = 100.0) -> list[Job]:
    return [Job(n, float(length), prompt, 0.0, 0.0) for n, length in enumerate(lengths)]


def machine(lengths: list[int], slots: int = 64, room: int | None = None) -> Machine:
    file = PROFILE.file
    profile = make_profile(msgspec.structs.replace(file, kv_tokens=room or file.kv_tokens))
    made = Machine(Table(profile, slots), 0.0)
    made.add(jobs(lengths))
    return made


@given(lengths_of)
def test_the_time_is_that_of_the_iteration_sum(lengths: list[int]) -> None:
    one = machine(lengths)
    one.advance(float("inf"))
    expected = replayed_seconds(PROFILE, lengths, slots=64, prompt_tokens=100.0)
    assert one.last == pytest.approx(expected, rel=1e-6)


@given(lengths_of, st.floats(0.05, 3.0))
def test_looking_in_between_changes_nothing(lengths: list[int], tick: float) -> None:
    straight, looked = machine(lengths), machine(lengths)
    ended = straight.advance(float("inf"))
    seen, now = [], 0.0
    while looked.load:
        now += tick
        seen += looked.advance(now)
    assert [one.sample for one in seen] == [one.sample for one in ended]
    assert seen[-1].at == pytest.approx(ended[-1].at, rel=1e-6)


@given(lengths_of, st.integers(1, 4), st.integers(3500, 9000))
def test_every_sample_ends_once_however_little_room_there_is(
    lengths: list[int], slots: int, room: int
) -> None:
    ended = machine(lengths, slots=slots, room=room).advance(float("inf"))
    assert sorted(one.sample for one in ended) == list(range(len(lengths)))


def test_a_sample_without_a_slot_waits() -> None:
    one = machine([1000, 1000], slots=1)
    first, second = one.advance(float("inf"))
    assert second.at == pytest.approx(2 * first.at, rel=1e-3)


def test_full_kv_sends_the_last_one_back_and_it_computes_its_tokens_again() -> None:
    tight = machine([2000, 2000], room=3000)
    tight.advance(float("inf"))
    assert tight.prefilled > 1000
    assert tight.last > machine([2000, 2000]).advance(float("inf"))[-1].at


def test_a_sample_that_was_cut_goes_on_where_it_was() -> None:
    one = machine([1000, 500])
    one.advance(2.0)
    cut = one.cut(0)
    assert cut.held - 100.0 + cut.rest == pytest.approx(1000)
    one.add([cut._replace(ready=3.0)])
    assert sorted(e.sample for e in one.advance(float("inf"))) == [0, 1]


def test_an_idle_engine_waits_for_what_comes_later() -> None:
    one = machine([10])
    one.advance(5.0)
    one.add([Job(9, 10.0, 100.0, 0.0, 7.0)])
    assert one.advance(float("inf"))[0].at > 7.0
