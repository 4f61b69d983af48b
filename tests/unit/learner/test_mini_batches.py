"""Which answers make which update of a pass."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from services.learner.core.mini_batches import dealt, mini_batch

BINS = st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=9)


@given(BINS, st.integers(1, 6))
def test_every_answer_is_in_one_mini_batch_and_all_have_equally_many_micro_batches(
    bins: list[list[int]], parts: int
) -> None:
    found = dealt(bins, parts)
    picked = [mini_batch(len(found), number, parts) for number in range(parts)]
    assert len({len(one) for one in picked}) == 1
    everywhere = [found[i] for one in picked for i in one]
    assert sorted(chain(*everywhere)) == sorted(chain(*bins))


@given(BINS, st.integers(1, 6))
def test_ranks_with_as_many_micro_batches_get_as_many(bins: list[list[int]], parts: int) -> None:
    assert len(dealt(bins, parts)) == len(dealt([[] for _ in bins], parts))


def test_a_batch_in_one_part_stays_as_it_was_laid_out() -> None:
    assert dealt([[1, 2], [3]], 1) == [[1, 2], [3]]


def test_few_micro_batches_are_split_and_go_on_where_the_one_before_ended() -> None:
    assert dealt([[1, 2, 3], [4, 5]], 2) == [[1, 3], [2], [5], [4]]


def test_of_many_micro_batches_the_last_round_is_filled_up() -> None:
    assert dealt([[n] for n in range(9)], 2) == [*([n] for n in range(9)), []]


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 6), st.integers(2, 4))
def test_mini_batches_over_all_ranks_differ_by_one_answer_for_each_rank(
    each: int, bins: int, ranks: int, parts: int
) -> None:
    split = [dealt([[0] * each] * min(bins, 4 * parts - 1), parts, rank=r) for r in range(ranks)]
    sizes = [
        sum(len(one[i]) for one in split for i in range(j, len(one), parts)) for j in range(parts)
    ]
    assert max(sizes) - min(sizes) <= ranks


def test_the_rest_of_each_rank_goes_to_another_mini_batch() -> None:
    firsts = [[len(one) for one in dealt([[1, 2, 3]], 4, rank=rank)] for rank in range(4)]
    assert [sum(sizes) for sizes in zip(*firsts, strict=True)] == [3, 3, 3, 3]
