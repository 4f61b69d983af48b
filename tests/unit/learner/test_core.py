"""Schedules, metrics, supervised slices, retention."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide import paths
from ebbtide.spec import ScheduleSpec
from services.learner.core.metrics import BINS, BINS_A_SIDE, SUMS, ratio_quantiles, update_stats
from services.learner.core.repetition import repeated
from services.learner.core.retention import policy_folder, prunable
from services.learner.core.samples import Sample, pad
from services.learner.core.schedules import Schedule
from services.learner.core.slices import my_batches, updates_of
from tests.unit.learner.gangs import samples


def schedule(kind: str, *, warmup: int = 10, final: float = 0.1) -> Schedule:
    shape: Any = {"type": kind, "warmup_updates": warmup, "final_fraction": final}
    return Schedule(ScheduleSpec(**shape), base=2.0, total=110)


def test_the_rate_rises_in_equal_steps_and_never_starts_at_0() -> None:
    rates = [schedule("constant").rate(update) for update in range(12)]
    assert rates[:3] == pytest.approx([0.2, 0.4, 0.6])
    assert rates[9:] == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("kind", "middle"), [("linear", 1.1), ("cosine", 1.1)])
def test_the_rate_falls_to_its_final_share_and_stays_there(kind: str, middle: float) -> None:
    falling = schedule(kind)
    assert falling.rate(10) == 2.0
    assert falling.rate(60) == pytest.approx(middle)
    assert falling.rate(110) == falling.rate(999) == pytest.approx(0.2)
    assert all(a >= b for a, b in pairwise(falling.rate(u) for u in range(10, 120)))


def sums(engine: np.ndarray, ours: np.ndarray) -> list[float]:
    gap = ours - engine
    weight = np.exp(gap)
    given = {
        "tokens": len(gap),
        "fresh": len(gap),
        "gap": -gap.sum(),
        "gap_k3": (np.expm1(gap) - gap).sum(),
        "x": engine.sum(),
        "y": ours.sum(),
        "xx": (engine**2).sum(),
        "yy": (ours**2).sum(),
        "xy": (engine * ours).sum(),
        "w": weight.sum(),
        "ww": (weight**2).sum(),
    }
    return [float(given.get(name, 0.0)) for name in SUMS]


def test_correlation_is_pearsons_and_ess_is_kishs() -> None:
    rng = np.random.default_rng(0)
    engine = -rng.exponential(1.0, 500)
    ours = engine + rng.normal(0, 0.3, 500)
    stats = update_stats(sums(engine, ours), [1.0, 1.0])
    weight = np.exp(ours - engine)
    assert stats["mismatch_correlation"] == pytest.approx(np.corrcoef(engine, ours)[0, 1])
    assert stats["mismatch_ess"] == pytest.approx(weight.sum() ** 2 / (500 * (weight**2).sum()))
    assert stats["mismatch_kl"] > 0


def test_quantiles_of_ratios_are_those_of_the_tokens() -> None:
    bins = [0.0] * BINS
    bins[BINS_A_SIDE], bins[BINS_A_SIDE + 256], bins[BINS_A_SIDE - 256] = 90.0, 5.0, 5.0
    found = ratio_quantiles(bins)
    assert found == pytest.approx(
        {"ratio_p01": math.exp(-1), "ratio_p50": 1.0, "ratio_p99": math.exp(1)}
    )
    assert ratio_quantiles([0.0] * BINS) == {}


def answer(*tokens: int) -> Sample:
    where = np.arange(1, len(tokens) + 1)
    return Sample(np.array([0, *tokens]), where, np.zeros(len(tokens), np.float32), 1.0, 1.0)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([(1, 2, 3, 4, 5)], (0, 2)),
        ([(1, 1, 1, 1, 1, 1)], (2, 3)),
        ([(1, 2, 3, 4), (1, 2, 3, 4)], (0, 2)),  # another's words are no repetition
        ([(1, 2, 3), (7, 7, 7, 7, 7)], (1, 2)),
    ],
)
def test_repeated_are_four_tokens_that_an_answer_had_before(
    answers: list[tuple[int, ...]], wanted: tuple[int, int]
) -> None:
    assert repeated(pad([answer(*one) for one in answers])) == wanted


def test_a_batch_without_tokens_has_finite_metrics() -> None:
    stats = update_stats([0.0] * len(SUMS), [1.0, 1.0])
    assert all(math.isfinite(value) for value in stats.values())


@given(st.lists(st.integers(1, 99), min_size=1, max_size=80), st.integers(1, 8), st.integers(0, 9))
def test_every_row_is_in_exactly_one_update_of_at_most_the_batch_size(
    lengths: list[int], batch: int, seed: int
) -> None:
    updates = updates_of(lengths, batch=batch, seed=seed)
    assert sorted(i for update in updates for i in update.rows) == list(range(len(lengths)))
    assert all(len(update.rows) <= batch for update in updates)
    assert updates == updates_of(lengths, batch=batch, seed=seed)


def test_rows_of_like_length_are_updated_together() -> None:
    lengths = [5, 50] * 16
    updates = updates_of(lengths, batch=4, seed=0)
    assert all(len({lengths[i] for i in update.rows}) == 1 for update in updates)


def test_supervised_ranks_have_equally_many_micro_batches_and_all_tokens() -> None:
    rows = samples(13)
    mine = [my_batches(rows, rank=r, ranks=3, limit=60) for r in range(3)]
    assert len({len(batches) for batches in mine}) == 1
    real = [b for batches in mine for b in batches if b.real]
    assert sum(len(b.targets) for b in real) == sum(len(s.chosen) for s in rows)


def test_the_newest_publications_and_those_in_checkpoints_are_kept() -> None:
    assert prunable({0, 1, 2, 3, 4, 5}, current=5, keep=2, named={1}) == [0, 2, 3]


@given(
    st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 5), st.sets(st.integers(0, 30))
)
def test_neither_the_current_publication_nor_a_named_one_is_ever_prunable(
    published: set[int], current: int, keep: int, named: set[int]
) -> None:
    gone = prunable(published, current=current, keep=keep, named=named)
    assert not set(gone) & ({current} | named)
    assert all(n < current for n in gone)


def test_the_folder_of_a_publication_is_found_from_any_of_its_files() -> None:
    folder = paths.policy("j", 2, 7)
    assert policy_folder(f"{folder}model.safetensors") == folder
    assert policy_folder(paths.manifest("j", 2, 7)) == ""
