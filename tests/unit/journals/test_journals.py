"""A journal reads back as tokens [0, n) exactly once, or says that it cannot."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide import journals
from ebbtide.errors import Corrupt, NotFound
from ebbtide.wire import Journal, PolicyRef, Span, pack_floats, pack_ints, unpack_ints

POLICY = PolicyRef(n=1, attempt=1, digest="d")


def chunk(start: int, end: int) -> Journal:
    span = Span(start, end, POLICY)
    numbers = range(start, end)
    return Journal(start, pack_ints(numbers), pack_floats(numbers), (span,))


def tokens(chunks: list[Journal]) -> list[int]:
    return [int(t) for c in chunks for t in unpack_ints(c.tokens)]


def test_chunks_join_in_order() -> None:
    assert tokens(journals.cover([chunk(3, 5), chunk(0, 3)], 5)) == [0, 1, 2, 3, 4]


def test_tokens_past_the_watermark_are_left_out() -> None:
    covered = journals.cover([chunk(0, 3), chunk(3, 9)], 4)
    assert tokens(covered) == [0, 1, 2, 3]
    assert covered[-1].spans == (Span(3, 4, POLICY),)


@pytest.mark.parametrize("held", [[], [chunk(1, 5)], [chunk(0, 2), chunk(3, 5)], [chunk(0, 4)]])
def test_a_gap_is_not_found(held: list[Journal]) -> None:
    with pytest.raises(NotFound, match="of 5 tokens"):
        journals.cover(held, 5)


def test_parts_of_unequal_length_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        journals.cover([Journal(0, pack_ints([1, 2]), pack_floats([0.0]), ())], 1)


@given(
    cuts=st.lists(st.integers(1, 39), unique=True),
    extra=st.lists(st.tuples(st.integers(0, 39), st.integers(1, 20))),
    n_tokens=st.integers(0, 40),
    seed=st.randoms(),
)
def test_repeated_and_overlapping_chunks_change_nothing(
    cuts: list[int], extra: list[tuple[int, int]], n_tokens: int, seed: Random
) -> None:
    bounds = [0, *sorted(cuts), 40]
    held = [chunk(a, b) for a, b in pairwise(bounds)]
    held += [chunk(start, min(start + n, 40)) for start, n in extra]
    seed.shuffle(held)
    covered = journals.cover(held, n_tokens)
    assert tokens(covered) == list(range(n_tokens))
    assert [s for c in covered for s in range(c.spans[0].start, c.spans[-1].end)] == list(
        range(n_tokens)
    )
