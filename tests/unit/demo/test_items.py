"""Lessons in order: clean before sloppy, batches of alike length."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ebbtide.demo.items import bucketed, lesson_rows

ITEMS = [{"question": f"q{n}", "answer": "alpha, beta"} for n in range(200)]


def test_sloppy_lessons_come_last() -> None:
    rows = list(lesson_rows(ITEMS, seed=1, sloppy=0.25))
    clean = [row["completion"] == "<answer>alpha, beta</answer>" for row in rows]
    assert all(clean[:150])
    assert 10 < clean[150:].count(False) < 45


def test_a_slip_changes_letters_and_nothing_else() -> None:
    for row in lesson_rows(ITEMS, seed=1, sloppy=1.0):
        answer = row["completion"].removeprefix("<answer>").removesuffix("</answer>")
        assert [len(word) for word in answer.split(", ")] == [5, 4]


def row(length: int) -> dict[str, Any]:
    return {"completion": "x" * length}


def test_buckets_keep_every_row_and_hold_alike_lengths() -> None:
    rows = [row(n * 7 % 64) for n in range(64)]
    found = [len(r["completion"]) for r in bucketed(rows, batch=8, seed=0)]
    batches = [found[n : n + 8] for n in range(0, 64, 8)]
    assert Counter(found) == Counter(len(r["completion"]) for r in rows)
    assert all(max(batch) - min(batch) == 7 for batch in batches)
    assert found != sorted(found)


def test_buckets_do_not_mix_windows() -> None:
    rows = [row(1)] * 16 + [row(2)] * 16
    found = [len(r["completion"]) for r in bucketed(rows, batch=4, seed=0, window=4)]
    assert found == [1] * 16 + [2] * 16
