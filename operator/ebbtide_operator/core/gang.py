"""The learner gang and its planner: when an attempt starts, breaks and starts anew (pure).

The attempt rises whenever the gang starts anew; planner and ranks of the old attempt then go and
new ones come, and never do two gangs run side by side. A planner that fails alone is replaced in
the same attempt.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ebbtide.objects import rfc3339
from ebbtide_operator.core.companions import access, meeting
from ebbtide_operator.core.failures import count, new_failures, wait_until
from ebbtide_operator.core.look import Look, in_the_way, index_of
from ebbtide_operator.core.plan import Actions, end
from ebbtide_operator.core.pods import (
    BROKEN_GRACE,
    LEARNER,
    PLANNER,
    learner_pod,
    planner_pod,
)
from ebbtide_operator.core.status import Own
from ebbtide_operator.podspec import PodView


def advance(look: Look, own: Own) -> Own:
    """Count what failed, and move on to the next attempt or planner where one is due."""
    if own.gang != "held":
        return _next_attempt(look, own)
    ranks = look.gang(own)
    own = count(own, LEARNER, new_failures(own, ranks), look.progress, look.now)
    if any(not rank.alive for rank in ranks):
        return _next_attempt(look, own)
    if leaving := look.noticed(ranks):
        if _saving(look):
            return own
        lost = new_failures(own, ranks, noticed=leaving)
        return _next_attempt(look, count(own, LEARNER, lost, look.progress, look.now))
    planners = look.planner(own)
    failed = new_failures(own, planners, noticed=look.noticed(planners))
    own = count(own, PLANNER, failed, look.progress, look.now)
    gone = any(not planner.alive for planner in planners)
    return msgspec.structs.replace(own, planner_serial=own.planner_serial + gone)


def _next_attempt(look: Look, own: Own) -> Own:
    now = rfc3339(look.now)
    return msgspec.structs.replace(
        own,
        gang="held",
        attempt=own.attempt + 1,
        planner_serial=0,
        start_time=now,
        placed_time="",
        running_time="",
        active_since=own.active_since or now,
    )


def plan(look: Look, own: Own) -> Actions:
    """End what was superseded, make what is missing."""
    if own.gang != "held":
        return Actions()
    old = look.superseded(own)
    ends = Actions(deletes=tuple(d for pod in old for d in end(pod, BROKEN_GRACE)))
    planners = look.planner(own)
    if look.noticed(look.gang(own)):
        return ends + _hand_over(pod for pod in _saving(look) if pod in planners)
    noticed = look.noticed(planners)
    gone = _hand_over(pod for pod in planners if pod.name in noticed)
    return ends + gone + _ranks(look, own) + _planner(look, own)


def _hand_over(pods: Iterable[PodView]) -> Actions:
    """End these in their own time."""
    return Actions(deletes=tuple(d for pod in pods for d in end(pod)))


def _saving(look: Look) -> list[PodView]:
    """The planner, while it can save a checkpoint of a gang that is about to go; else nothing."""
    saves = look.cast.spec.checkpoint.on_suspend
    return in_the_way(look.of(PLANNER), look.now) if saves else []


def _ranks(look: Look, own: Own) -> Actions:
    gang = look.gang(own)
    have = {index_of(pod) for pod in gang}
    missing = [rank for rank in range(look.wanted(LEARNER)) if rank not in have]
    others = [pod for pod in look.of(LEARNER) if pod not in gang]
    if not missing or in_the_way(others, look.now):
        return Actions()
    if (until := wait_until(own, LEARNER)) > look.now:
        return Actions(wakes=(until,))
    ranks = tuple(learner_pod(look.cast, own.attempt, rank) for rank in missing)
    return Actions(creates=(*meeting(look.cast), *ranks))


def _planner(look: Look, own: Own) -> Actions:
    if look.planner(own) or in_the_way(look.of(PLANNER), look.now):
        return Actions()
    if (until := wait_until(own, PLANNER)) > look.now:
        return Actions(wakes=(until,))
    pod = planner_pod(look.cast, own.attempt, own.planner_serial)
    return Actions(creates=(*access(look.cast), pod))
