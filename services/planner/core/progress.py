"""How far a job is, as its status shows it (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.wire import PolicyRef
from services.planner.core.book import Book
from services.planner.core.config import JobConfig
from services.planner.core.course import Course
from services.planner.core.crew import Crew
from services.planner.core.reporting import price
from services.planner.core.samples import ABANDONED, INVALID, OpenStep
from services.planner.core.training import Training


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """The planner's part of the job's status. `finished`: "" | complete | failed.

    `step` counts from 0 and is the one under way; `steps` is how many there are in all, the
    closing evaluation included. `suspended`: all is saved, the pods may go. `cost` is what the
    planner can explain so far; None where a price is unknown.
    """

    phase: str
    step: int
    steps: int
    attempt: int
    epoch: int
    expected: int
    accepted: int
    scored: int
    abandoned: int
    invalid: int
    actors: int
    serving: int
    policy: PolicyRef | None
    reward: float | None
    eval_reward: float | None
    checkpoint_step: int | None
    cost: float | None
    suspended: bool
    finished: str
    reason: str
    message: str


def progress(
    *, config: JobConfig, book: Book, course: Course, training: Training, crew: Crew
) -> Progress:
    """Draw it up."""
    step, outcome = book.open, course.outcome
    saved = max((kept.step for kept in book.checkpoints), default=None)
    return Progress(
        phase="sync" if course.phase == "decode" and not course.marks.handed_out else course.phase,
        step=book.next_step,
        steps=config.last_step + 1,
        attempt=book.attempt,
        epoch=book.epoch,
        expected=len(step) if step else 0,
        accepted=sum(found is not None for found in step.rollouts) if step else 0,
        scored=_scored(step) if step else 0,
        abandoned=step.states.count(ABANDONED) if step else 0,
        invalid=step.states.count(INVALID) if step else 0,
        actors=len(crew),
        serving=sum(book.policy is not None and actor.serves(book.policy) for actor in crew),
        policy=book.policy,
        reward=course.last_reward,
        eval_reward=book.evals[-1].mean if book.evals else None,
        checkpoint_step=saved,
        cost=_cost(config, book),
        suspended=course.suspended,
        finished=outcome.outcome if outcome else "",
        reason=outcome.reason if outcome else "",
        message=_message(outcome.message if outcome else "", training),
    )


def _scored(step: OpenStep) -> int:
    return sum(found is not None for found in step.scores)


def _cost(config: JobConfig, book: Book) -> float | None:
    costs = [price(seconds, role, config.economy) for (role, _), seconds in book.spent.items()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _message(ending: str, training: Training) -> str:
    if ending or not training.unsaved:
        return ending
    return f"checkpoint after step {training.unsaved[0]} failed: {training.unsaved[1]}"
