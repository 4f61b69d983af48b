"""Who gets which waiting sample."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from services.planner.core.waiting import Waiting


def by_fours() -> Waiting:
    return Waiting(same=lambda a, b: a // 4 == b // 4)


def everything(_: int) -> bool:
    return True


def may(_victim: str, _moved: Sequence[int]) -> bool:
    return True


def may_not(_victim: str, _moved: Sequence[int]) -> bool:
    return False


def test_an_actor_gets_its_own_share_and_nothing_that_waits_no_more() -> None:
    waiting = by_fours()
    waiting.deal({"a": [0, 1], "b": [4, 5]}, [], until=10.0)
    assert waiting.take("b", 8, lambda sample: sample != 5) == [4]
    assert waiting.take("b", 8, everything) == []


def test_a_share_is_kept_for_a_newcomer_until_the_time_is_over() -> None:
    waiting = by_fours()
    waiting.deal({"a": []}, [[4]], until=10.0)
    assert not waiting.find_more("a", 9.0, may)
    assert waiting.kept
    waiting.join("b")
    assert waiting.take("b", 2, everything) == [4]


def test_a_kept_share_goes_to_anybody_once_the_time_is_over() -> None:
    waiting = by_fours()
    waiting.deal({"a": []}, [[4]], until=10.0)
    assert waiting.find_more("a", 10.0, may_not)
    assert waiting.take("a", 2, everything) == [4]


def test_an_idle_actor_takes_half_of_the_longest_queue_by_whole_groups() -> None:
    waiting = by_fours()
    waiting.deal({"a": list(range(12)), "b": []}, [], until=0.0)
    assert waiting.find_more("b", 0.0, may)
    assert waiting.take("b", 12, everything) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert waiting.take("a", 12, everything) == [0, 1, 2, 3]


def test_what_would_not_end_sooner_stays_where_it_is() -> None:
    waiting = by_fours()
    waiting.deal({"a": list(range(12)), "b": []}, [], until=0.0)
    assert not waiting.find_more("b", 0.0, may_not)
    assert waiting.take("a", 12, everything) == list(range(12))


def test_where_the_longest_queue_gives_nothing_the_next_is_asked() -> None:
    waiting = by_fours()
    waiting.deal({"a": list(range(12)), "b": list(range(12, 20)), "c": []}, [], until=0.0)
    assert waiting.find_more("c", 0.0, lambda other, _: other == "b")
    assert waiting.take("c", 12, everything) == [16, 17, 18, 19]
    assert waiting.take("a", 12, everything) == list(range(12))


def test_what_lost_its_actor_comes_before_what_waits() -> None:
    waiting = by_fours()
    waiting.deal({"a": [8, 9]}, [], until=0.0)
    waiting.put_back([0, 1], ["a"])
    assert waiting.take("a", 3, everything) == [0, 1, 8]


def test_what_is_put_back_later_comes_after_what_was_put_back_before() -> None:
    waiting = by_fours()
    waiting.deal({"a": [8, 9]}, [], until=0.0)
    for sample in (0, 1, 2):
        waiting.put_back([sample], ["a"])
    waiting.drop(1)
    assert waiting.take("a", 1, everything) == [0]
    waiting.put_back([3], ["a"])
    assert waiting.take("a", 9, everything) == [2, 3, 8, 9]


def test_the_first_named_gets_a_single_sample_and_nobody_much_more_than_others() -> None:
    waiting = by_fours()
    waiting.put_back([0], ["a", "b", "c"])
    assert waiting.take("a", 9, everything) == [0]
    waiting.put_back(range(5), ["a", "b", "c"])
    assert [len(waiting.take(name, 9, everything)) for name in "abc"] == [2, 2, 1]


def test_what_lost_the_last_actor_waits_for_the_next_one() -> None:
    waiting = by_fours()
    waiting.deal({"a": [0]}, [], until=0.0)
    waiting.put_back(waiting.leave("a"), [])
    waiting.join("b")
    assert waiting.take("b", 1, everything) == [0]


def test_an_old_entry_of_a_sample_that_waits_again_does_not_give_it_twice() -> None:
    waiting = by_fours()
    waiting.deal({"a": [0, 1]}, [], until=0.0)
    waiting.put_back([1], ["a"])  # a next turn, while the entry of the first one is still there
    assert waiting.take("a", 4, everything) == [1, 0]


@given(st.lists(st.sampled_from("abcdx"), max_size=40), st.integers(1, 4), st.integers(1, 5))
def test_no_waiting_sample_is_lost_or_given_twice(moves: str, shares: int, room: int) -> None:
    waiting, given_out, names = by_fours(), [], ["a"]
    dealt = [list(range(s * 4, s * 4 + 4)) for s in range(shares)]
    waiting.deal({"a": dealt[0]}, dealt[1:], until=5.0)
    for now, move in enumerate(moves):
        if move == "x" and len(names) > 1:
            gone = names.pop()
            waiting.put_back(waiting.leave(gone), names)
        elif move in names:
            waiting.queued(move) or waiting.find_more(move, float(now), may)
            given_out += waiting.take(move, room, everything)
        elif move != "x":
            names.append(move)
            waiting.join(move)
    for _ in range(50):
        waiting.queued("a") or waiting.find_more("a", 1000.0, may)
        given_out += waiting.take("a", 100, everything)
    assert sorted(given_out) == list(range(4 * shares))
