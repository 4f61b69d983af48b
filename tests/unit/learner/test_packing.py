"""The layout of packed rows: everything has a place, nothing is too large, ranks weigh alike."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.rl.packing import WIDEST, Kin, first_fit, packed_size, partition_packed
from services.learner.core.sharing import Rows
from services.learner.core.slices import my_batches
from tests.unit.learner.gangs import samples

LENGTHS = st.lists(st.integers(1, 60), max_size=40)


@given(LENGTHS, st.integers(60, 90))
def test_items_of_a_row_follow_each_other_without_overlap(lengths: list[int], width: int) -> None:
    rows = defaultdict(list)
    for length, (row, start) in zip(lengths, first_fit(lengths, width), strict=True):
        rows[row].append((start, start + length))
    for spans in rows.values():
        spans.sort()
        assert spans[0][0] == 0
        assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
        assert spans[-1][1] <= width


@given(LENGTHS, st.integers(1, 4), st.integers(1, 300), st.integers(0, 8))
def test_every_item_has_one_place_and_no_micro_batch_is_too_large(
    lengths: list[int], ranks: int, limit: int, size: int
) -> None:
    kin = Kin([i // size for i in range(len(lengths))], [1] * len(lengths)) if size else None
    places, count = partition_packed(lengths, ranks=ranks, limit=limit, kin=kin)
    found = defaultdict(list)
    for length, place in zip(lengths, places, strict=True):
        found[place].append(length)
    assert all(0 <= rank < ranks and 0 <= j < count for rank, j in found)
    for items in found.values():
        assert len(items) == 1 or packed_size(items) <= limit


def test_ranks_are_balanced_by_tokens() -> None:
    lengths = [1000, *[100] * 10, *[10] * 100]
    places, _ = partition_packed(lengths, ranks=2, limit=4000)
    loads = [sum(n for n, (r, _) in zip(lengths, places, strict=True) if r == k) for k in (0, 1)]
    assert abs(loads[0] - loads[1]) <= 10


def test_siblings_are_kept_together_and_ranks_stay_balanced() -> None:
    lengths, groups = [100 + i for i in range(64)], [i % 8 for i in range(64)]
    places, _ = partition_packed(lengths, ranks=2, limit=2000, kin=Kin(groups, [80] * 64))
    homes = [{p for p, g in zip(places, groups, strict=True) if g == k} for k in range(8)]
    assert all(len(home) <= 2 for home in homes)
    loads = [sum(n for n, (r, _) in zip(lengths, places, strict=True) if r == k) for k in (0, 1)]
    assert abs(loads[0] - loads[1]) <= max(lengths)


def test_what_is_too_wide_for_a_packed_row_counts_with_its_padding() -> None:
    assert packed_size([WIDEST + 1, 1, 1]) == 3 * (WIDEST + 1)
    assert packed_size([WIDEST, 1, 1]) == 2 * WIDEST


def test_packing_needs_fewer_micro_batches_of_the_same_size() -> None:
    lengths = [64, *[16] * 12]
    assert partition_packed(lengths, ranks=1, limit=256)[1] == 1
    assert packed_size(lengths) == 256


def test_supervised_rows_are_packed_too() -> None:
    rows = samples(20)
    [plain], [packed] = (
        my_batches(rows, rank=0, ranks=1, limit=10_000, layout=layout)
        for layout in (Rows(), Rows(fill=True))
    )
    assert packed.computed < plain.computed
    assert sorted(packed.targets) == sorted(plain.targets)
