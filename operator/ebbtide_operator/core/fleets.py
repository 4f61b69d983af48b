"""Actors, scorers, the prefill service: any number of equal pods that come and go and outlive attempts (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import msgspec

from ebbtide import labels
from ebbtide.ports import Resource
from ebbtide_operator.core.failures import count, new_failures, wait_until
from ebbtide_operator.core.look import Look, index_of
from ebbtide_operator.core.plan import Actions, end
from ebbtide_operator.core.pods import (
    DECODE,
    PREFILL,
    REWARD,
    decode_pod,
    pool_object,
    prefill_pod,
    reward_pod,
)
from ebbtide_operator.core.status import Own, PoolStatus, read_pool
from ebbtide_operator.podspec import PodView

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own annotation: of pods that are equal otherwise, those with less go first."""
Maker = Callable[[int], Resource]


def advance(look: Look, own: Own) -> Own:
    """Count what failed."""
    for role in (PREFILL, DECODE, REWARD):
        pods = look.of(role)
        failed = new_failures(own, pods, noticed=look.noticed(pods))
        own = count(own, role, failed, look.progress, look.now)
    return own


def plan_scorers(look: Look, own: Own) -> tuple[Own, Actions]:
    """As many scorers as the job says."""
    pods = look.of(REWARD)
    first = _next_index(own.next_reward, pods)
    wanted = look.wanted(REWARD)
    made, actions = _plan(
        pods,
        wanted=wanted,
        first=first,
        make=lambda index: reward_pod(look.cast, own.attempt, index),
        not_before=wait_until(own, REWARD),
        now=look.now,
        release=look.noticed(pods),
    )
    return msgspec.structs.replace(own, next_reward=first + made), actions


def plan_prefill(look: Look, own: Own) -> tuple[Own, Actions]:
    """One prefill service where the job wants one; without it actors compute their prompts."""
    pods = look.of(PREFILL)
    first = _next_index(own.next_prefill, pods)
    made, actions = _plan(
        pods,
        wanted=look.wanted(PREFILL),
        first=first,
        make=lambda index: prefill_pod(look.cast, own.attempt, index),
        not_before=wait_until(own, PREFILL),
        now=look.now,
        release=look.noticed(pods),
    )
    return msgspec.structs.replace(own, next_prefill=first + made), actions


def plan_actors(look: Look, own: Own, pool: PoolStatus) -> tuple[PoolStatus, Actions]:
    """As many actors as the pool says; the pool itself first."""
    if not look.cast.scores:
        return pool, Actions()
    owner = look.pool
    if owner is None:
        return pool, Actions(creates=(pool_object(look.cast),))
    if owner.metadata.deletion_timestamp is not None:
        return pool, Actions()  # somebody deleted it: it is made anew once it is gone
    pods = look.of(DECODE)
    first = _next_index(pool.next_index, pods)
    made, actions = _plan(
        pods,
        wanted=look.wanted(DECODE),
        first=first,
        make=lambda index: decode_pod(look.cast, owner, own.attempt, index),
        not_before=wait_until(own, DECODE),
        now=look.now,
        release={*owner.spec.get("release", ()), *look.noticed(pods)},
    )
    return msgspec.structs.replace(pool, next_index=first + made), actions


def count_pool(look: Look, pool: PoolStatus, *, wanted: int) -> PoolStatus:
    """`pool` with its pods counted."""
    pods = look.of(DECODE)
    alive = [pod for pod in pods if pod.alive]
    return msgspec.structs.replace(
        pool,
        next_index=_next_index(pool.next_index, pods),
        observed_generation=look.pool.metadata.generation if look.pool else 0,
        replicas=len(alive),
        ready_replicas=sum(pod.status.ready for pod in alive),
        pending_replicas=sum(pod.status.phase == "Pending" for pod in alive),
        draining_replicas=sum(pod.leaving and not pod.finished for pod in pods),
        desired_replicas=wanted,
        selector=f"{labels.JOB_UID}={look.cast.uid},{labels.ROLE}={DECODE}",
    )


def numbers(pool: Resource | None, pods: Sequence[PodView]) -> dict[str, int] | None:
    """Patch of the pool's status that notes the numbers its pods have, if it is behind."""
    if pool is None:
        return None
    known = read_pool(pool).next_index
    now = _next_index(known, [pod for pod in pods if pod.label(labels.ROLE) == DECODE])
    return {"nextIndex": now} if now != known else None


def _next_index(known: int, pods: Sequence[PodView]) -> int:
    """No name is used twice; a pod that was made before its number was noted counts too."""
    return max((known, *(index_of(pod) + 1 for pod in pods)))


def _plan(
    pods: Sequence[PodView],
    *,
    wanted: int,
    first: int,
    make: Maker,
    not_before: float,
    now: float,
    release: Collection[str] = (),
) -> tuple[int, Actions]:
    """How many pods are made, with numbers from `first`, and all actions."""
    over = [pod for pod in pods if pod.finished]
    alive = [pod for pod in pods if pod.alive]
    named = [pod for pod in alive if pod.name in release]
    kept = [pod for pod in alive if pod.name not in release]
    ends = tuple(d for pod in (*over, *named, *_excess(kept, wanted)) for d in end(pod))
    missing = max(0, wanted - len(kept))
    if missing and not_before > now:
        return 0, Actions(deletes=ends, wakes=(not_before,))
    creates = tuple(make(first + n) for n in range(missing))
    return missing, Actions(creates=creates, deletes=ends)


def _excess(kept: Sequence[PodView], wanted: int) -> list[PodView]:
    """Victims of a scale-down that names none: not ready yet, then cheapest, then the newest."""
    order = sorted(kept, key=lambda pod: (pod.status.ready, _cost(pod), -index_of(pod)))
    return order[: max(0, len(kept) - wanted)]


def _cost(pod: PodView) -> int:
    """What it costs to end the pod, as somebody wrote there; whatever is no number costs nothing."""
    written = pod.resource.metadata.annotations.get(DELETION_COST, "0")
    return int(written) if re.fullmatch(r"-?\d{1,10}", written) else 0
