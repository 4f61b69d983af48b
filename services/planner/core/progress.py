"""How far a job is, as its status shows it (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebbtide.status import CostStatus, PolicyStatus, Progress
from services.planner.core.book import Book
from services.planner.core.config import JobConfig
from services.planner.core.course import Course
from services.planner.core.crew import Crew
from services.planner.core.samples import ABANDONED, INVALID, OpenStep
from services.planner.core.training import Training


class Standing(Progress, frozen=True, rename="camel"):
    """`status.progress`, with what people like to watch. Samples are those of the open step.

    `suspended`: all that should outlive the pods is saved. `checkpoint_step`: updates in the
    newest checkpoint.
    """

    samples_expected: int = 0
    samples_accepted: int = 0
    samples_scored: int = 0
    samples_abandoned: int = 0
    samples_invalid: int = 0
    actors: int = 0
    actors_serving: int = 0
    reward: float | None = None
    eval_reward: float | None = None
    checkpoint_step: int | None = None
    suspended: bool = False


def standing(
    *,
    config: JobConfig,
    book: Book,
    course: Course,
    training: Training,
    crew: Crew,
    warning: str = "",
) -> Standing:
    """Draw it up; the time of the last progress is left to whoever knows the time of day."""
    step, outcome = book.open, course.outcome
    policy = book.policy
    return Standing(
        step=min(book.next_step, config.total_steps),
        total_steps=config.total_steps,
        phase=course.shown_phase,
        attempt=book.attempt,
        outcome=outcome.outcome if outcome else "",
        reason=outcome.reason if outcome else "",
        message=_message(outcome.message if outcome else "", training),
        warning=warning,
        planner_epoch=book.epoch,
        samples_expected=step.size if step else 0,
        samples_accepted=_known(step.rollouts) if step else 0,
        samples_scored=_known(step.scores) if step else 0,
        samples_abandoned=_in(step, ABANDONED),
        samples_invalid=_in(step, INVALID),
        actors=len(crew),
        actors_serving=sum(policy is not None and actor.serves(policy) for actor in crew),
        reward=course.last_reward,
        eval_reward=book.evals[-1].mean if book.evals else None,
        checkpoint_step=max((kept.step for kept in book.checkpoints), default=None),
        suspended=course.suspended,
    )


def policy_status(book: Book) -> PolicyStatus | None:
    """`status.policy`: the newest committed policy, or the first; None before it is known."""
    policy, index = book.policy, book.index
    if policy is None or index is None:
        return None
    folder = index.path.rpartition("/")[0] + "/"
    return PolicyStatus(policy.n, policy.digest, policy.attempt, folder)


def cost_status(
    config: JobConfig, book: Book, unspent: Mapping[tuple[str, str], float]
) -> CostStatus:
    """`status.cost`: what the planner can explain.

    `unspent`: seconds by role and cause that are not in the ledger yet.
    """
    spent = [*book.spent.items(), *unspent.items()]
    costs = [config.economy.of(role, cause, seconds) for (role, cause), seconds in spent]
    known = [cost for cost in costs if cost is not None]
    whole = len(known) == len(costs)
    return CostStatus(accrued=sum(known) if whole else None, currency=config.economy.currency)


def _known(found: Sequence[object]) -> int:
    return sum(one is not None for one in found)


def _in(step: OpenStep | None, state: int) -> int:
    return step.states.count(state) if step else 0


def _message(ending: str, training: Training) -> str:
    if ending or not training.unsaved:
        return ending
    return f"checkpoint after step {training.unsaved[0]} failed: {training.unsaved[1]}"
