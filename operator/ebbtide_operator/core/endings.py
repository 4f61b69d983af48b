"""What ends or stops a job: outcomes, cancellation, limits, deadlines, money (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ebbtide import labels
from ebbtide.last_words import sentence
from ebbtide.objects import rfc3339, unix_time
from ebbtide_operator.core.look import Look
from ebbtide_operator.core.pods import LEARNER, PLANNER
from ebbtide_operator.core.reasons import Reason
from ebbtide_operator.core.status import LastFailure, Own

_LEAVE_SECONDS = 30.0


class Verdict(msgspec.Struct, frozen=True):
    """The terminal condition (Complete | Failed) that the job gets, for good."""

    kind: str
    reason: Reason
    message: str


class Deadline(msgspec.Struct, frozen=True):
    """Passed at the Unix time `at`."""

    at: float
    reason: Reason
    message: str


def judge(look: Look, own: Own) -> Verdict | None:
    """The first thing that ends the job, if anything does."""
    for verdict in (_cancelled(look), _outcome(look), _limits(look, own), _late(look, own)):
        if verdict is not None:
            return verdict
    return None


def over_budget(look: Look) -> bool:
    """Whether the job has cost more than it may; an unknown cost is not over anything."""
    budget, accrued = look.cast.spec.budget, look.cost.accrued
    return budget is not None and accrued is not None and accrued > budget.max_cost


def note_restart(look: Look, own: Own) -> Own:
    """Take down the restart that is asked for once it is done: when every pod has left.

    The one that a job is created with asks for nothing, and an ended job never runs again.
    """
    asked = look.cast.spec.restart.id if look.cast.spec.restart else ""
    running = any(not pod.finished for pod in look.pods)
    if not asked or asked == own.restart_id or own.gang != "released" or running:
        return own
    return msgspec.structs.replace(own, restart_id=asked)


def suspension(look: Look, own: Own) -> Reason | None:
    """Why the job must not run now, if it must not."""
    if look.cast.spec.suspend:
        return Reason.SUSPENDED_BY_USER
    budget = look.cast.spec.budget
    if budget and budget.on_exceed == "Suspend" and over_budget(look):
        return Reason.BUDGET_EXCEEDED
    restart = look.cast.spec.restart
    if restart and restart.id != own.restart_id:
        return Reason.RESTART_REQUESTED
    return None


def note_times(look: Look, own: Own) -> Own:
    """Write down when the gang was placed and when the attempt's first progress came."""
    now = rfc3339(look.now)
    if not own.placed_time and _placed(look, own):
        own = msgspec.structs.replace(own, placed_time=now)
    if not own.running_time and own.placed_time and _progressed(look, own):
        own = msgspec.structs.replace(own, running_time=now)
    return own


def deadlines(look: Look, own: Own) -> Iterator[Deadline]:
    """The deadlines that run now."""
    if own.gang != "held":
        return
    limits = look.cast.spec.deadlines
    if limits.active_seconds is not None:
        yield Deadline(
            unix_time(own.active_since) - own.active_seconds + limits.active_seconds,
            Reason.ACTIVE_DEADLINE_EXCEEDED,
            f"the job ran for {limits.active_seconds:g} s",
        )
    if not own.placed_time:
        if limits.scheduling_seconds is not None:
            yield Deadline(
                unix_time(own.start_time) + limits.scheduling_seconds,
                Reason.SCHEDULING_DEADLINE_EXCEEDED,
                f"not all pods were placed in {limits.scheduling_seconds:g} s",
            )
    elif own.running_time:
        yield Deadline(
            _last_progress(look, own) + limits.stall_seconds,
            Reason.STALL_DEADLINE_EXCEEDED,
            f"no progress for {limits.stall_seconds:g} s, in phase {look.progress.phase or '?'}",
        )
    elif limits.pre_running_seconds is not None:
        yield Deadline(
            unix_time(own.placed_time) + limits.pre_running_seconds,
            Reason.PRE_RUNNING_DEADLINE_EXCEEDED,
            f"no first progress {limits.pre_running_seconds:g} s after all pods were placed",
        )


def _cancelled(look: Look) -> Verdict | None:
    if labels.CANCEL in look.cast.job.metadata.annotations:
        return Verdict("Failed", Reason.CANCELLED, "the job was cancelled")
    return None


def _outcome(look: Look) -> Verdict | None:
    """The planner's own verdict, once it has left (or should have)."""
    progress = look.progress
    running = any(not pod.finished for pod in look.of(PLANNER))
    if not progress.outcome or (running and look.now < _leaves_by(look)):
        return None
    if progress.outcome == "complete":
        return Verdict("Complete", Reason.ALL_STEPS_DONE, progress.message or "all steps are done")
    message = f"{progress.reason}: {progress.message}".strip(": ")
    return Verdict("Failed", Reason.TRAINING_FAILED, message)


def _leaves_by(look: Look) -> float:
    since = look.progress.last_progress_time
    return (unix_time(since) if since else 0.0) + _LEAVE_SECONDS


def _limits(look: Look, own: Own) -> Verdict | None:
    said = _said(own.last_failure)
    if any(retry.refusals >= 2 for retry in own.retries.values()):
        return Verdict("Failed", Reason.ROLE_REFUSED, said)
    limit = look.cast.spec.backoff_limit
    if own.failures > limit:
        words = f"{own.failures} failures of its own, backoffLimit is {limit}; last: {said}"
        return Verdict("Failed", Reason.BACKOFF_LIMIT_EXCEEDED, words)
    for role, retry in own.retries.items():
        if retry.count > look.cast.site.restart_limit:
            words = f"{role} was restarted {retry.count} times without progress; last: {said}"
            return Verdict("Failed", Reason.RESTART_LIMIT_EXCEEDED, words)
    budget = look.cast.spec.budget
    if budget and budget.on_exceed == "Fail" and over_budget(look):
        words = f"the job cost {look.cost.accrued} {look.cast.spec.currency}"
        return Verdict("Failed", Reason.BUDGET_EXCEEDED, f"{words}, more than {budget.max_cost}")
    return None


def _said(failure: LastFailure | None) -> str:
    if failure is None:
        return ""
    code = "" if failure.exit_code is None else f" (exit code {failure.exit_code})"
    return f"{failure.pod}: {failure.reason}{code}: {sentence(failure.message)}"[:2000]


def _late(look: Look, own: Own) -> Verdict | None:
    for deadline in deadlines(look, own):
        if deadline.at <= look.now:
            return Verdict("Failed", deadline.reason, deadline.message)
    return None


def _placed(look: Look, own: Own) -> bool:
    gang, planner = look.gang(own), look.planner(own)
    if own.gang != "held" or len(gang) < look.wanted(LEARNER) or not planner:
        return False
    return all(pod.status.phase != "Pending" for pod in (*gang, *planner))


def _progressed(look: Look, own: Own) -> bool:
    at = look.progress.last_progress_time
    return bool(at) and unix_time(at) >= unix_time(own.start_time)


def _last_progress(look: Look, own: Own) -> float:
    at = look.progress.last_progress_time
    return max(unix_time(own.running_time), unix_time(at) if at else 0.0)
