"""What to do about a job: observed objects in, one plan out (pure, level-triggered).

Nothing is remembered but the job's status, so a plan may be broken off anywhere, or made twice,
and the next look goes on. An ended job stays ended: no pod is ever made for it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import ValidationError

from ebbtide.objects import rfc3339, unix_time
from ebbtide.ports import Resource
from ebbtide.prices import unlisted
from ebbtide.spec import NO_PROGRAMS, RLHFJobSpec
from ebbtide_operator.core import conditions, endings, fleets, gang, held, notes
from ebbtide_operator.core.look import Look, Observed
from ebbtide_operator.core.plan import Actions, Deletion, Note, Patch, Plan, end
from ebbtide_operator.core.pods import PLANNER, STOP_GRACE, Cast
from ebbtide_operator.core.reasons import Reason
from ebbtide_operator.core.site import Site, overridden
from ebbtide_operator.core.status import Own, PoolStatus, own_patch, read_own, read_pool

JOB_FINALIZER = "rlhf.ebbtide.dev/operator"
"""Holds a job object until its pods have left."""
_SPEC_BYTES = 100_000
_SPECS = 1024
"""Specifications that are kept parsed."""
_SOON = 0.05
_EXPIRED = Note("Expired", "ttlSecondsAfterFinished has passed")


def reconcile(seen: Observed, now: float, *, site: Site) -> Plan:
    """Judge one job at `now` (Unix seconds). `site` must not change between plans of a process."""
    kept = Plan(usage=held.usages(seen.pods, now), patches=held.releases(seen.pods))
    job = seen.job
    if job is None:
        return kept  # its pods were deleted with it
    if job.metadata.deletion_timestamp is not None:
        return _delete(kept, job, seen, now)
    if JOB_FINALIZER not in job.metadata.finalizers:
        return Plan(patches=(_take_on(job, site),))
    kept = msgspec.structs.replace(kept, pool_status=fleets.numbers(seen.pool, seen.pods))
    own = read_own(job)
    spec = _fit(parse(job), own, site)
    if isinstance(spec, str):
        return _refuse(kept, job, own, spec, now=now)
    cast = _cast(job, spec, site, seen.runtime)
    if isinstance(cast, str):
        return _refuse(kept, job, own, cast, now=now, reason=Reason.NO_RUNTIME)
    look = Look(cast, seen.pool, seen.pods, now, seen.interrupted, seen.refused)
    return _decide(kept, look, own)


def _take_on(job: Resource, site: Site) -> Patch:
    """The first write to a job: hold it, and note what its pools cost from now on."""
    finalizers = [*job.metadata.finalizers, JOB_FINALIZER]
    body: dict[str, Any] = {"metadata": {"finalizers": finalizers}}
    if missing := unlisted(job.spec, site.prices, site.currency):
        body["spec"] = {"prices": [*job.spec.get("prices", ()), *missing]}
    return Patch(job, body)


def parse(job: Resource) -> RLHFJobSpec | str:
    """The job's specification, or what is wrong with it."""
    text = msgspec.json.encode(job.spec)
    if len(text) > _SPEC_BYTES:
        return f"spec: {len(text)} bytes of JSON, the limit is {_SPEC_BYTES}"
    return _parsed(text)


@lru_cache(maxsize=_SPECS)
def _parsed(text: bytes) -> RLHFJobSpec | str:
    """A specification is frozen, and looked at many times for each time that it changes."""
    try:
        return RLHFJobSpec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"spec{'.' if where else ''}{where}: {first['msg']}"


# --- the three kinds of pass ----------------------------------------------------------------------


def _cast(job: Resource, spec: RLHFJobSpec, site: Site, runtime: Resource | None) -> Cast | str:
    """The job and how its pods are made, or what is wrong with the runtime that it names."""
    if spec.runtime_ref is None or site.kubernetes is None:
        return Cast(job, spec, site)
    if runtime is None:
        return f"there is no ClusterRLHFRuntime {spec.runtime_ref.name}"
    try:
        kubernetes = overridden(site.kubernetes, runtime.spec)
    except msgspec.ValidationError as error:
        return f"ClusterRLHFRuntime {spec.runtime_ref.name}: {error}"
    there = msgspec.structs.replace(site, kubernetes=kubernetes)
    return Cast(job, spec, there, runtime.spec)


def _fit(spec: RLHFJobSpec | str, own: Own, site: Site) -> RLHFJobSpec | str:
    """The specification, or why the installation does not run it: programs want cells."""
    if isinstance(spec, str) or own.ended or spec.programs is None or site.kubernetes is None:
        return spec
    told = f"spec.reward.components.{spec.programs}: {NO_PROGRAMS}"
    return spec if site.kubernetes.sandbox.there else told


def _refuse(
    kept: Plan,
    job: Resource,
    own: Own,
    why: str,
    *,
    now: float,
    reason: Reason = Reason.SPEC_INVALID,
) -> Plan:
    """An invalid specification starts nothing; what runs already is left alone."""
    generation = job.metadata.generation
    after = conditions.settle(own, conditions.invalid(why, reason), generation=generation, now=now)
    return msgspec.structs.replace(
        kept, status=own_patch(own, after), events=notes.between(own, after)
    )


def _delete(kept: Plan, job: Resource, seen: Observed, now: float) -> Plan:
    """The job object is going: free its pods first, then let it go."""
    if not seen.pods:
        left = [name for name in job.metadata.finalizers if name != JOB_FINALIZER]
        gone = Patch(job, {"metadata": {"finalizers": left}})
        had = JOB_FINALIZER in job.metadata.finalizers
        return msgspec.structs.replace(kept, patches=(gone,)) if had else kept
    own = read_own(job)
    words = conditions.left_over(len(seen.pods))
    fact = conditions.Fact("Draining", holds=True, reason=Reason.DELETING, message=words)
    after = conditions.settle(own, [fact], generation=job.metadata.generation, now=now)
    deletes = tuple(d for pod in seen.pods for d in end(pod, STOP_GRACE))
    return msgspec.structs.replace(
        kept, status=own_patch(own, after), deletes=deletes, requeue_after=_requeue(seen, (), now)
    )


def _decide(kept: Plan, look: Look, own: Own) -> Plan:
    before, pool_before = own, read_pool(look.pool)
    own = _forget_gone(look, own)
    own = endings.note_restart(look, own)
    if not own.ended:
        own = _judge(look, own)
    why_not = _why_not(look, own)
    if why_not is None:
        own, pool, actions = _run(look, own, pool_before)
        own = _judge(look, own)  # what was just counted may be one failure too many
        why_not = Reason.NOT_WANTED if own.ended else None
    if why_not is not None:
        pool = pool_before
        own, actions = _free(look, own, gently=not own.ended)
        actions += _expire(look, own)
    pool = fleets.count_pool(look, pool, wanted=look.wanted("decode") if why_not is None else 0)
    own = _describe(look, own, why_not)
    return _assemble(kept, look, (before, own), (pool_before, pool), actions)


def _run(look: Look, own: Own, pool: PoolStatus) -> tuple[Own, PoolStatus, Actions]:
    own = gang.advance(look, own)
    own = fleets.advance(look, own)
    own = endings.note_times(look, own)
    own, scorers = fleets.plan_scorers(look, own)
    own, prefill = fleets.plan_prefill(look, own)
    pool, actors = fleets.plan_actors(look, own, pool)
    return own, pool, gang.plan(look, own) + scorers + prefill + actors


def _free(look: Look, own: Own, *, gently: bool) -> tuple[Own, Actions]:
    """End every pod. Gently: the planner first, which saves a checkpoint while the others live.

    What goes is written off before it is touched, so whoever resumes the job, however soon,
    starts another planner, or the next attempt. A gang that is no longer whole can save nothing.
    """
    if own.ended and look.cast.spec.deletion_policy == "KeepAll":
        return _release(look, own), Actions()
    saving = [pod for pod in look.of(PLANNER) if not pod.finished]
    whole = all(rank.alive for rank in look.gang(own))
    if gently and saving and whole and look.cast.spec.checkpoint.on_suspend:
        serial = own.planner_serial + bool(look.planner(own))
        own = msgspec.structs.replace(own, planner_serial=serial)
        return own, Actions(deletes=tuple(d for pod in saving for d in end(pod)))
    deletes = tuple(d for pod in look.pods for d in end(pod, STOP_GRACE))
    return _release(look, own), Actions(deletes=deletes)


def _expire(look: Look, own: Own) -> Actions:
    """Delete the object of a job that ended long enough ago."""
    keep = look.cast.spec.ttl_seconds_after_finished
    if keep is None or not own.ended or not own.completion_time:
        return Actions()
    due = unix_time(own.completion_time) + keep
    if due > look.now:
        return Actions(wakes=(due,))
    return Actions(deletes=(Deletion(look.cast.job),))


def _release(look: Look, own: Own) -> Own:
    """Stop the clock of active time."""
    since = own.active_since
    spent = look.now - unix_time(since) if since else 0.0
    return msgspec.structs.replace(
        own, gang="released", active_since="", active_seconds=own.active_seconds + spent
    )


# --- parts ----------------------------------------------------------------------------------------


def _judge(look: Look, own: Own) -> Own:
    verdict = endings.judge(look, own)
    if verdict is None:
        return own
    generation = look.cast.job.metadata.generation
    facts = conditions.ending(verdict)
    own = conditions.settle(own, facts, generation=generation, now=look.now)
    return msgspec.structs.replace(own, completion_time=rfc3339(look.now))


def _why_not(look: Look, own: Own) -> Reason | None:
    return Reason.NOT_WANTED if own.ended else endings.suspension(look, own)


def _forget_gone(look: Look, own: Own) -> Own:
    """Failed pods stay counted only while their objects exist."""
    here = {pod.uid for pod in look.pods}
    queued = own.queued_time or rfc3339(look.now)
    counted = tuple(uid for uid in own.counted if uid in here)
    return msgspec.structs.replace(own, counted=counted, queued_time=queued)


def _describe(look: Look, own: Own, why_not: Reason | None) -> Own:
    own = conditions.count_roles(look, own, runs=why_not is None)
    facts = conditions.facts(look, own, why_not=why_not)
    generation = look.cast.job.metadata.generation
    return conditions.settle(own, facts, generation=generation, now=look.now)


def _assemble(
    kept: Plan,
    look: Look,
    own: tuple[Own, Own],
    pool: tuple[PoolStatus, PoolStatus],
    actions: Actions,
) -> Plan:
    before, after = own
    old_pool, new_pool = (msgspec.to_builtins(one) for one in pool)
    changed = {name: value for name, value in new_pool.items() if old_pool.get(name) != value}
    failed = [pod for pod in look.pods if pod.uid in set(after.counted) - set(before.counted)]
    late = () if after.ended else (d.at for d in endings.deadlines(look, after))
    waits = (at for at in conditions.pending_since(look) if at > look.now and not after.ended)
    seen = Observed(look.cast.job, look.pool, look.pods)
    return msgspec.structs.replace(
        kept,
        status=own_patch(before, after),
        pool_status=(changed or None) if look.pool else None,
        creates=actions.creates,
        deletes=actions.deletes,
        events=notes.between(before, after, failed=failed, made=actions.creates)
        + tuple(_EXPIRED for one in actions.deletes if one.target.kind == "RLHFJob"),
        requeue_after=_requeue(seen, (*actions.wakes, *late, *waits), look.now, look.cast.site),
    )


def _requeue(
    seen: Observed, wakes: Iterable[float], now: float, site: Site | None = None
) -> float | None:
    """Seconds until the next look that no change would cause."""
    beat = (now + (site or Site()).usage_seconds,) if seen.pods else ()
    times = [*wakes, *beat]
    return max(_SOON, min(times) - now) if times else None
