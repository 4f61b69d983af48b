"""Which pods failed, whose fault it was, and how long to wait before the next try (pure).

A failed pod is counted once: its uid stands in the status until the object is gone. A fault is
the job's own (it counts toward backoffLimit), the infrastructure's (killed by a signal, lost, cut
off; it does not), or a refusal (configuration that cannot work). Whatever the fault, a role that
restarts again and again without progress ends the job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from ebbtide import labels
from ebbtide.exits import (
    EXIT_FENCED,
    EXIT_OK,
    EXIT_OVERRAN,
    EXIT_PERMANENT,
    EXIT_REFUSED,
    EXIT_TEMPORARY,
)
from ebbtide.objects import rfc3339, unix_time
from ebbtide.status import Progress
from ebbtide_operator.core.pods import DECODE, PREFILL, REWARD
from ebbtide_operator.core.status import LastFailure, Own, Retry
from ebbtide_operator.podspec import PodView

INTERRUPTED = "Interrupted"
_FORGIVEN_SECONDS = 600.0
_LONGEST_WAIT = 60.0
_OWN_REASONS = frozenset({"CannotStart"})


class Fault(StrEnum):
    """Whose fault a failure was."""

    OWN = "own"
    INFRASTRUCTURE = "infrastructure"
    REFUSAL = "refusal"


def fault_of(pod: PodView) -> Fault:
    """Judge a finished pod that nobody had asked to end."""
    status = pod.status
    if status.reason in _OWN_REASONS:
        return Fault.OWN
    if status.signal is not None or status.exit_code is None:
        return Fault.INFRASTRUCTURE
    if status.exit_code in (EXIT_REFUSED, EXIT_PERMANENT):
        return Fault.REFUSAL
    if status.exit_code in (EXIT_OK, EXIT_FENCED, EXIT_TEMPORARY, EXIT_OVERRAN):
        return Fault.INFRASTRUCTURE
    return Fault.OWN


def new_failures(
    own: Own, pods: Iterable[PodView], *, noticed: Collection[str] = ()
) -> list[PodView]:
    """Pods that ended without being asked to and are not in the counters yet, oldest first.

    `noticed`: names of others that are about to be taken away, which is the infrastructure's fault.
    """
    lost = [p for p in pods if (p.finished and not p.leaving) or p.name in noticed]
    fresh = [p for p in lost if p.uid not in own.counted]
    return sorted(fresh, key=lambda p: (p.status.finished_at, p.name))


def count(own: Own, role: str, failed: Sequence[PodView], progress: Progress, now: float) -> Own:
    """`own` with one more failure of `role`; pods that fail together are one failure.

    If any of them was the infrastructure's fault, all of it was: the others fell with it.
    """
    if not failed:
        return own
    outside = [pod for pod in failed if fault_of(pod) is Fault.INFRASTRUCTURE]
    culprit = (outside or failed)[0]
    whose = fault_of(culprit)
    retry = standing(own, role, progress, now)
    after = Retry(
        count=retry.count + 1,
        at=rfc3339(now),
        mark=_mark(role, progress),
        refusals=retry.refusals + (whose is Fault.REFUSAL),
    )
    return msgspec.structs.replace(
        own,
        failures=own.failures + (whose is not Fault.INFRASTRUCTURE),
        restarts=own.restarts + 1,
        retries={**own.retries, role: after},
        counted=(*own.counted, *(pod.uid for pod in failed)),
        last_failure=describe(role, culprit, rfc3339(now)),
    )


def standing(own: Own, role: str, progress: Progress, now: float) -> Retry:
    """Failures of the role in a row; none once there was progress, or ten quiet minutes."""
    retry = own.retries.get(role, Retry())
    forgiven = retry.at and now - unix_time(retry.at) > _FORGIVEN_SECONDS
    return Retry() if forgiven or retry.mark != _mark(role, progress) else retry


def wait_until(own: Own, role: str) -> float:
    """Unix time before which the role is not started again: at once, then 1, 2, 4 ... 60 s."""
    retry = own.retries.get(role, Retry())
    if retry.count < 2:
        return 0.0
    return unix_time(retry.at) + min(_LONGEST_WAIT, 2.0 ** (retry.count - 2))


def describe(role: str, pod: PodView, at: str = "") -> LastFailure:
    """What is kept of a failed pod; `at`: when that was noticed."""
    status = pod.status
    return LastFailure(
        role=role,
        pod=pod.name,
        attempt=int(pod.label(labels.ATTEMPT) or 0),
        reason=_reason(pod),
        time=status.finished_at or at,
        exit_code=status.exit_code,
        signal=status.signal,
        message=status.message,
    )


def _reason(pod: PodView) -> str:
    status = pod.status
    if not pod.finished:
        return INTERRUPTED
    if status.reason:
        return status.reason
    if status.signal is not None:
        return "Killed"
    return {None: "Lost", EXIT_OK: "EndedEarly"}.get(status.exit_code, "Error")


def _mark(role: str, progress: Progress) -> str:
    """What must change for a failure to be forgiven.

    Planner and learner must commit a step. The others may come and go (spot): any progress of the
    job will do.
    """
    passing = role in (PREFILL, DECODE, REWARD)
    return progress.last_progress_time if passing else str(progress.step)
