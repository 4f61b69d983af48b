"""Laws of the batch layout and of group advantages."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Refused
from ebbtide.rl.advantages import group_advantages
from ebbtide.rl.batching import Candidate, Layout, lay_out
from ebbtide.wire import Ref, Row, SampleKey

NOWHERE = Ref(path="r", digest="d", size=1)


def candidate(index: int, length: int, advantage: float, context: int = 0) -> Candidate:
    key = SampleKey(job_uid="j", step_issued=0, group=index // 4, index=index % 4)
    return Candidate(key=key, ref=NOWHERE, n_tokens=length, advantage=advantage, n_context=context)


@st.composite
def batches(draw: st.DrawFn) -> list[Candidate]:
    sizes = draw(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 60)), max_size=40))
    return [
        candidate(i, n, draw(st.sampled_from([0.0, -1.5, 0.25])), context)
        for i, (n, context) in enumerate(sizes)
    ]


RANKS = st.integers(1, 5)
LIMITS = st.integers(1, 2000)


def computed(layout: Layout) -> list[Row]:
    return [row for row in layout.rows if row.rank >= 0]


@given(batches(), RANKS, LIMITS)
def test_every_token_is_in_the_denominator_and_every_row_has_one_place(
    rows: list[Candidate], ranks: int, limit: int
) -> None:
    layout = lay_out(rows, ranks=ranks, microbatch_tokens=limit)
    assert layout.tokens == sum(row.n_tokens for row in rows)
    assert layout.sequences == len(rows)
    assert [row.key for row in layout.rows] == sorted(row.key for row in rows)
    assert {r.key for r in computed(layout)} == {r.key for r in rows if r.advantage != 0.0}


@given(batches(), RANKS, LIMITS)
def test_places_lie_within_equal_microbatch_counts(
    rows: list[Candidate], ranks: int, limit: int
) -> None:
    layout = lay_out(rows, ranks=ranks, microbatch_tokens=limit)
    places = {(row.rank, row.microbatch) for row in computed(layout)}
    assert all(0 <= r < ranks and 0 <= m < layout.microbatches for r, m in places)
    assert len(places) > (layout.microbatches - 1) * ranks or not places


@given(batches(), RANKS, LIMITS)
def test_no_microbatch_is_larger_than_the_limit_unless_one_sample_is(
    rows: list[Candidate], ranks: int, limit: int
) -> None:
    layout = lay_out(rows, ranks=ranks, microbatch_tokens=limit)
    length = {row.key: row.length for row in rows}
    bins: dict[tuple[int, int], list[int]] = {}
    for row in computed(layout):
        bins.setdefault((row.rank, row.microbatch), []).append(length[row.key])
    assert all(len(b) == 1 or len(b) * max(b) <= limit for b in bins.values())


@given(batches(), RANKS, LIMITS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing(
    rows: list[Candidate], ranks: int, limit: int, order: random.Random
) -> None:
    shuffled = list(rows)
    order.shuffle(shuffled)
    first = lay_out(rows, ranks=ranks, microbatch_tokens=limit)
    assert lay_out(shuffled, ranks=ranks, microbatch_tokens=limit) == first


@given(batches(), RANKS, LIMITS)
def test_dropped_groups_leave_the_denominator_and_are_named(
    rows: list[Candidate], ranks: int, limit: int
) -> None:
    layout = lay_out(rows, ranks=ranks, microbatch_tokens=limit, drop_zero=True)
    moving = {row.key.group for row in rows if row.advantage != 0.0}
    assert layout.tokens == sum(row.n_tokens for row in rows if row.key.group in moving)
    assert set(layout.dropped) == {row.key for row in rows if row.key.group not in moving}
    assert not set(layout.dropped) & {row.key for row in layout.rows}


def test_a_sample_at_its_groups_mean_is_not_dropped_with_groups_without_variance() -> None:
    rows = [candidate(i, 10, advantage) for i, advantage in enumerate((-0.5, 0.0, 0.5, 0.0))]
    still = [candidate(i, 10, 0.0) for i in range(4, 8)]
    layout = lay_out([*rows, *still], ranks=1, microbatch_tokens=100, drop_zero=True)
    assert layout.dropped == tuple(row.key for row in still)
    assert (layout.tokens, layout.sequences, len(computed(layout))) == (40, 4, 2)


def test_with_a_kl_term_samples_without_advantage_are_computed_too() -> None:
    rows = [candidate(i, 10, 0.0) for i in range(4)]
    layout = lay_out(rows, ranks=2, microbatch_tokens=100, skip_zero=False)
    assert len(computed(layout)) == 4


def test_padded_work_of_two_ranks_differs_little() -> None:
    rows = [candidate(i, 5 + (i * 37) % 60, 1.0, context=20) for i in range(256)]
    layout = lay_out(rows, ranks=2, microbatch_tokens=2048)
    length = {row.key: row.length for row in rows}
    sums = [sum(length[r.key] for r in layout.rows if r.rank == rank) for rank in (0, 1)]
    assert max(sums) <= 1.1 * min(sums)


def test_a_sample_named_twice_is_refused() -> None:
    with pytest.raises(Refused, match="twice"):
        lay_out([candidate(1, 3, 1.0)] * 2, ranks=1, microbatch_tokens=10)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=16), st.sampled_from(["group", "none"]))
def test_advantages_of_a_group_sum_to_zero(values: list[float], scale: str) -> None:
    advantages = group_advantages(values, scale)
    assert len(advantages) == len(values)
    assert abs(sum(advantages)) <= 1e-9 * max(1.0, *(abs(v) for v in values)) * len(values)


@given(st.floats(-1e6, 1e6), st.integers(1, 16), st.sampled_from(["group", "none"]))
def test_a_group_without_variance_has_exact_zeros(value: float, n: int, scale: str) -> None:
    assert group_advantages([value] * n, scale) == [0.0] * n


def test_group_scaling_divides_by_the_sample_deviation() -> None:
    assert group_advantages([0.0, 1.0], "none") == [-0.5, 0.5]
    assert group_advantages([0.0, 1.0], "group")[1] == pytest.approx(0.5 / (0.5**0.5 + 1e-4))


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(Refused, match="finite"):
        group_advantages([0.0, float("nan")], "none")
