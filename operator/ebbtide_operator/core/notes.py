"""Events: what changed between two statuses, for people (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ebbtide import labels
from ebbtide.ports import Resource
from ebbtide_operator.core.failures import INTERRUPTED, describe
from ebbtide_operator.core.plan import Note
from ebbtide_operator.core.pods import PLANNER
from ebbtide_operator.core.status import Condition, Own
from ebbtide_operator.podspec import PodView

_WARNINGS = frozenset({"Failed", "Degraded"})
_TOLD = frozenset({"Running", "Suspended", "Complete", "Failed", "Degraded", "Draining"})


def between(
    before: Own,
    after: Own,
    *,
    failed: Sequence[PodView] = (),
    made: Sequence[Resource] = (),
) -> tuple[Note, ...]:
    """Events of one pass, in the order in which things happened."""
    notes = [_failure(pod) for pod in failed]
    notes += _starts(before, after)
    notes += [_planner(pod) for pod in made if pod.metadata.labels.get(labels.ROLE) == PLANNER]
    notes += [_told(c) for c in _news(before, after)]
    return tuple(notes)


def _failure(pod: PodView) -> Note:
    kept = describe(pod.label(labels.ROLE), pod)
    if kept.reason == INTERRUPTED:
        return Note(INTERRUPTED, f"{pod.name}: its node is about to go", warning=True)
    how = f"signal {kept.signal}" if kept.signal is not None else f"exit code {kept.exit_code}"
    return Note("PodFailed", f"{pod.name}: {kept.reason} ({how})", warning=True)


def _starts(before: Own, after: Own) -> list[Note]:
    notes = []
    if before.holds("Suspended") and not after.holds("Suspended") and not after.ended:
        notes.append(Note("Resumed", "the job goes on from its last checkpoint"))
    if after.attempt > before.attempt:
        notes.append(Note("AttemptStarted", f"attempt {after.attempt} starts"))
    return notes


def _planner(pod: Resource) -> Note:
    return Note("PlannerStarted", f"{pod.metadata.name} starts")


def _news(before: Own, after: Own) -> Iterable[Condition]:
    for condition in after.conditions:
        old = before.condition(condition.type)
        flipped = old is None or old.status != condition.status
        refused = condition.type == "Accepted" and condition.status == "False"
        told = condition.type in _TOLD and condition.status == "True"
        if flipped and (told or refused):
            yield condition


def _told(condition: Condition) -> Note:
    warning = condition.type in _WARNINGS or condition.status == "False"
    return Note(condition.reason, condition.message or condition.type, warning=warning)
