"""Conditions, the derived phase and the counts of a job's status (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ebbtide import labels
from ebbtide.objects import rfc3339, unix_time
from ebbtide_operator.core.endings import Verdict, over_budget
from ebbtide_operator.core.failures import standing
from ebbtide_operator.core.look import Look
from ebbtide_operator.core.pods import DECODE, LEARNER, PLANNER, PREFILL, REWARD, ROLES
from ebbtide_operator.core.reasons import Reason
from ebbtide_operator.core.status import Condition, Own, RoleStatus
from ebbtide_operator.podspec import PodView

_WRITERS = frozenset({"ebbtide-operator", "ebbtide-planner", "scale"})
"""Field managers that may write a pool's replicas."""
_GATED = "SchedulingGated"
_PENDING_SECONDS = 120.0
_UNEXPLAINED = "its node has not started it, and says no reason"
_SHOWN = ("Complete", "Failed", "Suspended", "Draining", "Running")
KINDS = ("Accepted", "Running", "Suspended", "Complete", "Failed", "Degraded", "Draining")


class Fact(msgspec.Struct, frozen=True):
    """A condition without its history."""

    kind: str
    holds: bool
    reason: Reason
    message: str = ""


def settle(own: Own, facts: Iterable[Fact], *, generation: int, now: float) -> Own:
    """`own` with these conditions; a transition time moves only when a status flips."""
    merged = {c.type: c for c in own.conditions}
    for fact in facts:
        merged[fact.kind] = _settled(merged.get(fact.kind), fact, generation, now)
    ordered = tuple(merged[kind] for kind in KINDS if kind in merged)
    own = msgspec.structs.replace(own, conditions=ordered, observed_generation=generation)
    return msgspec.structs.replace(own, phase=phase_of(own), reason=reason_of(own))


def _settled(old: Condition | None, fact: Fact, generation: int, now: float) -> Condition:
    status = "True" if fact.holds else "False"
    since = old.last_transition_time if old and old.status == status else rfc3339(now)
    return Condition(fact.kind, status, fact.reason.value, fact.message, since, generation)


def phase_of(own: Own) -> str:
    """One word for a column; nothing reads it to decide."""
    failed = own.condition("Failed")
    if failed and failed.status == "True" and failed.reason == Reason.CANCELLED:
        return "Cancelled"
    for kind in _SHOWN:
        if own.holds(kind):
            return kind
    return "Starting" if own.holds("Accepted") else "Pending"


def reason_of(own: Own) -> str:
    """Why the phase is what it is, in one word: of what was found wrong, or of what is awaited."""
    accepted = own.condition("Accepted")
    if accepted is not None and accepted.status == "False":
        return accepted.reason
    shown = next((kind for kind in _SHOWN if own.holds(kind)), "Running")
    found = own.condition(shown)
    return found.reason if found else ""


def invalid(message: str, reason: Reason = Reason.SPEC_INVALID) -> list[Fact]:
    """The facts of a job whose specification is wrong."""
    return [
        Fact("Accepted", holds=False, reason=reason, message=message[:2000]),
        Fact("Running", holds=False, reason=Reason.NOT_WANTED),
    ]


def ending(verdict: Verdict) -> list[Fact]:
    """The terminal fact."""
    return [Fact(verdict.kind, holds=True, reason=verdict.reason, message=verdict.message)]


def facts(look: Look, own: Own, *, why_not: Reason | None) -> list[Fact]:
    """All facts but the terminal ones. `why_not`: why nothing should run, if nothing should."""
    left = [pod for pod in look.pods if not pod.finished]
    runs = why_not is None
    return [
        Fact("Accepted", holds=True, reason=Reason.SPEC_ACCEPTED),
        _running(look, own) if runs else Fact("Running", holds=False, reason=Reason.NOT_WANTED),
        _suspended(own, why_not, bool(left)),
        *(
            Fact(kind, holds=False, reason=Reason.NOT_ENDED)
            for kind in ("Complete", "Failed")
            if not own.ended
        ),
        _degraded(look, own) if runs else Fact("Degraded", holds=False, reason=Reason.NOT_WANTED),
        _draining(len(left) if not runs and not _kept(look, own) else 0),
    ]


def count_roles(look: Look, own: Own, *, runs: bool) -> Own:
    """`own` with the pods of each role counted."""
    wanted = {role: look.wanted(role) if runs else 0 for role in ROLES}
    counted = (_count(look, role, wanted[role]) for role in ROLES)
    kept = tuple(one for one in counted if one != RoleStatus(one.name))
    return msgspec.structs.replace(own, roles=kept)


def _count(look: Look, role: str, wanted: int) -> RoleStatus:
    pods = look.of(role)
    return RoleStatus(
        name=role,
        desired=wanted,
        ready=sum(pod.alive and pod.status.ready for pod in pods),
        pending=sum(pod.alive and pod.status.phase == "Pending" for pod in pods),
        draining=sum(pod.leaving and not pod.finished for pod in pods),
        failed=sum(pod.status.phase == "Failed" for pod in pods),
    )


def _running(look: Look, own: Own) -> Fact:
    current = [*look.gang(own), *look.planner(own), *look.of(PREFILL, DECODE, REWARD)]
    ready = dict.fromkeys(ROLES, 0)
    for pod in current:
        role = pod.label(labels.ROLE)
        ready[role] += pod.alive and pod.status.ready
    needed = {
        PLANNER: 1,
        LEARNER: look.wanted(LEARNER),
        DECODE: 0 if _comes_and_goes(look, own) else min(1, look.wanted(DECODE)),
        REWARD: min(1, look.wanted(REWARD)),
    }
    short = {role: f"{ready[role]}/{n}" for role, n in needed.items() if ready[role] < n}
    if short:
        words = "waiting for " + ", ".join(f"{role} {count}" for role, count in short.items())
        waiting = [pod for pod in current if pod.label(labels.ROLE) in short]
        gated = any(pod.alive and pod.status.reason == _GATED for pod in waiting)
        reason = Reason.WAITING_FOR_QUOTA if gated else Reason.PODS_STARTING
        return Fact("Running", holds=False, reason=reason, message=words)
    return Fact("Running", holds=True, reason=Reason.ROLES_READY)


def _comes_and_goes(look: Look, own: Own) -> bool:
    """An elastic pool of a job that runs: its actors come and go between and inside steps."""
    return _is_elastic(look) and own.holds("Running")


def _is_elastic(look: Look) -> bool:
    return look.cast.spec.planner.scaling == "elastic"


def _suspended(own: Own, why_not: Reason | None, left: bool) -> Fact:
    if own.ended or why_not not in (Reason.SUSPENDED_BY_USER, Reason.BUDGET_EXCEEDED):
        return Fact("Suspended", holds=False, reason=Reason.NOT_SUSPENDED)
    if left:
        return Fact("Suspended", holds=False, reason=Reason.SUSPENDING)
    return Fact("Suspended", holds=True, reason=why_not)


def _degraded(look: Look, own: Own) -> Fact:
    progress, now = look.progress, look.now
    failing = [role for role in own.retries if standing(own, role, progress, now).count > 1]
    if failing:
        words = "restarting " + ", ".join(sorted(failing))
        return Fact("Degraded", holds=True, reason=Reason.RESTARTING, message=words)
    if trouble := next(_troubles(look), None):
        return trouble
    if own.holds("Running") and (short := _short(look, own)):
        return _ill(Reason.PODS_MISSING, "ready: " + ", ".join(short))
    return Fact("Degraded", holds=False, reason=Reason.AS_WANTED)


def _short(look: Look, own: Own) -> list[str]:
    """Roles of which fewer pods are ready than must be, with the numbers."""
    due = {one.name: min(one.desired, _must_be(look, one.name)) for one in own.roles}
    return [
        f"{one.name} {one.ready}/{due[one.name]}" for one in own.roles if one.ready < due[one.name]
    ]


def _must_be(look: Look, role: str) -> int:
    """How many pods of the role the job needs.

    What the planner scales needs no more than the least that the user allows: the pool's actors,
    which it has started or lets go, and a service that it may do without.
    """
    if role == PREFILL and look.cast.spec.prefill.mode == "auto":
        return 0
    if role != DECODE or not _is_elastic(look):
        return look.wanted(role)
    least = max(1, look.cast.spec.decode.min_replicas)
    return least if any(_is_late(pod, look.now) for pod in look.of(DECODE)) else 0


def _is_late(pod: PodView, now: float) -> bool:
    """An actor that was made long ago and is not ready."""
    return _is_coming(pod) and _too_long(pod) <= now


def _is_coming(pod: PodView) -> bool:
    return pod.alive and not pod.status.ready and pod.label(labels.ROLE) == DECODE


def _troubles(look: Look) -> Iterator[Fact]:
    """What is wrong outside the pods that run, the worst first."""
    if look.refused:
        yield _ill(Reason.PODS_REFUSED, look.refused[:2000])
    if over_budget(look):
        yield _ill(Reason.OVER_BUDGET, f"cost {look.cost.accrued} {look.cast.spec.currency}")
    if strangers := _strangers(look):
        words = f"replicas of the pool were written by {strangers}: scale it instead"
        yield _ill(Reason.FOREIGN_EDIT, words)
    if waits := _pending(look):
        yield _ill(Reason.PODS_PENDING, waits)


def _ill(reason: Reason, message: str) -> Fact:
    return Fact("Degraded", holds=True, reason=reason, message=message)


def pending_since(look: Look) -> list[float]:
    """When the start of each pod takes too long; one whose queue has not admitted it may wait."""
    return [_too_long(pod) for pod in look.pods if _waits(pod) or _is_coming(pod)]


def _pending(look: Look) -> str:
    """What pods wait for too long, in the words of who lets one of them wait."""
    late = [pod for pod in look.pods if _waits(pod) and _too_long(pod) <= look.now]
    if not late:
        return ""
    first = min(late, key=lambda pod: (not pod.status.reason, _too_long(pod), pod.name))
    why = f"{first.status.reason} {first.status.message}".strip()
    return f"{_waiting(len(late))}; {first.name}: {why or _UNEXPLAINED}"[:2000]


def _waiting(number: int) -> str:
    return "1 pod waits for its start" if number == 1 else f"{number} pods wait for their start"


def _waits(pod: PodView) -> bool:
    return pod.alive and pod.status.phase == "Pending" and pod.status.reason != _GATED


def _too_long(pod: PodView) -> float:
    made = pod.resource.metadata.creation_timestamp
    return (unix_time(made) if made else 0.0) + _PENDING_SECONDS


def _strangers(look: Look) -> str:
    """Who wrote what only the planner and /scale write, where the store records it."""
    managers = look.pool.metadata.managers if look.pool else {}
    return ", ".join(sorted(set(managers.values()) - _WRITERS))


def _kept(look: Look, own: Own) -> bool:
    return own.ended and look.cast.spec.deletion_policy == "KeepAll"


def _draining(left: int) -> Fact:
    if not left:
        return Fact("Draining", holds=False, reason=Reason.NOT_DRAINING)
    return Fact("Draining", holds=True, reason=Reason.FREEING_PODS, message=left_over(left))


def left_over(number: int) -> str:
    """How many pods are still there, in words."""
    return f"{number} pod{'s' if number != 1 else ''} left"
