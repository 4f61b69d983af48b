"""When a checkpoint is due, and which are kept."""

from __future__ import annotations

import pytest

from services.planner.core.book import Book, Kept
from services.planner.core.checkpoints import is_due, superseded
from services.planner.core.evaluation import EvalResult
from tests.unit.planner.builders import NO_EVAL, UID, a_config, a_policy, a_ref


@pytest.mark.parametrize(
    ("step", "due"),
    [(0, False), (1, False), (3, True), (4, False), (6, True), (7, True), (8, False)],
)
def test_a_checkpoint_is_due_every_third_step_and_at_the_end(step: int, due: bool) -> None:
    assert is_due(step, a_config(steps=7, checkpoint_every=3, work=NO_EVAL)) is due


def test_an_evaluated_policy_is_saved_so_that_the_best_can_be_kept() -> None:
    config = a_config(steps=7, checkpoint_every=100)
    assert [step for step in range(8) if is_due(step, config)] == [2, 4, 6, 7]


def a_book(steps: int, *, best: int) -> Book:
    book = Book(job_uid=UID)
    for step in range(1, steps + 1):
        ref = a_ref(f"jobs/j/attempts/0001/manifests/{step:08d}.msgpack")
        book.checkpoints.append(Kept(step, ref, a_policy(step), a_ref("index"), step))
        book.evals.append(EvalResult(step, 1.0 if step == best else 0.5, 0.0, 1, 1, 1))
    return book


def forgotten(book: Book, retain: int) -> list[int]:
    gone = superseded(book, a_config(retain=retain))
    return sorted({int(path[-16:-8]) for path in gone})


def test_the_newest_checkpoints_and_the_best_stay() -> None:
    assert forgotten(a_book(6, best=2), retain=2) == [1, 3, 4]


def test_what_an_attempt_began_from_stays() -> None:
    book = a_book(6, best=2)
    book.parents.add(book.checkpoints[2].ref.path)
    assert forgotten(book, retain=2) == [1, 4]
