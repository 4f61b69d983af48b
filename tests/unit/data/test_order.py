"""The order of data: a permutation per epoch, the same on every machine, without an end."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.data.order import DataOrder, order

seeds = st.integers(0, 2**63 - 1)
sizes = st.integers(1, 200)


@given(seeds, st.integers(0, 1000), sizes)
def test_an_epoch_holds_every_row_once(seed: int, epoch: int, n: int) -> None:
    assert sorted(order(seed, epoch, n)) == list(range(n))


def test_the_order_is_the_same_for_ever() -> None:
    assert order(seed=7, epoch=0, n=8).tolist() == [5, 3, 4, 0, 1, 6, 2, 7]


def test_seed_and_epoch_each_change_the_order() -> None:
    orders = {tuple(order(seed, epoch, 64)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4


def test_every_row_is_as_likely_at_every_place() -> None:
    firsts = Counter(int(order(seed, 0, 8)[0]) for seed in range(4000))
    assert max(abs(count - 500) for count in firsts.values()) < 5 * np.sqrt(500)


@given(seeds, sizes, st.integers(0, 500), st.lists(st.integers(0, 50), max_size=8))
def test_pieces_taken_one_after_the_other_are_the_whole(
    seed: int, n: int, cursor: int, counts: list[int]
) -> None:
    data = DataOrder(n_rows=n, seed=seed)
    pieces: list[int] = []
    for count in counts:
        pieces.extend(DataOrder(n_rows=n, seed=seed).take(cursor + len(pieces), count))
    assert tuple(pieces) == data.take(cursor, sum(counts))


@given(seeds, sizes)
def test_the_border_of_an_epoch_ends_nothing(seed: int, n: int) -> None:
    taken = DataOrder(n_rows=n, seed=seed).take(n - 1, 2 * n + 1)
    assert len(taken) == 2 * n + 1
    assert Counter(taken[1 : n + 1]) == Counter(range(n))


def test_without_shuffling_rows_come_in_file_order() -> None:
    assert DataOrder(n_rows=3, seed=1, shuffle=False).take(1, 4) == (1, 2, 0, 1)
