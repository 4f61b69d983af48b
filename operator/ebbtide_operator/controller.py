"""The operator's shell: take a job from the queue, look, ask the core, write, requeue.

Level-triggered: a pass reads everything from the cache and may be repeated or broken off at any
point. One job is looked at by one pass at a time, several jobs side by side, so that no job waits
for another's writes; the status is written once per pass, and what people are told comes after
it. Every write is preceded by a look at the lease.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any, NoReturn

import msgspec

from ebbtide import labels
from ebbtide.errors import Conflict, NotFound, Refused, Temporary
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Blobs, Clock, Cluster, Meta, Resource
from ebbtide.tracing import NO_SPANS, Spans
from ebbtide_operator.cache import Cache
from ebbtide_operator.core.look import Observed
from ebbtide_operator.core.plan import Deletion, Note, Patch, Plan
from ebbtide_operator.core.pods import owner
from ebbtide_operator.core.reconcile import reconcile
from ebbtide_operator.core.retention import NO_LIMITS, Limits
from ebbtide_operator.core.site import Site
from ebbtide_operator.heldtime import HeldTime
from ebbtide_operator.lease import Lease, Lost
from ebbtide_operator.metrics import OperatorMetrics
from ebbtide_operator.pace import Pace
from ebbtide_operator.retention import Retention
from ebbtide_operator.starts import Starts
from ebbtide_operator.tails import Tails
from ebbtide_operator.worklist import JobKey, JobQueue

WORKERS = 8
"""Jobs that are looked at side by side: a pass mostly waits for the API server."""
USAGES_PER_SECOND = 50.0
"""Of very many pods, held time is refreshed less often than `usage_seconds`."""
CONFLICT_SECONDS = 0.05
RETRY_SECONDS = 0.5
REFUSED_SECONDS = 5.0
RESYNC_SECONDS = 30.0
SHOW_SECONDS = 2.0
STUCK_SECONDS = 120.0
COUNTS_SECONDS = 1.0
"""How long a status may be behind by counts of pods alone."""


class Controller:
    """Keeps all jobs as their objects say."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        blobs: Blobs,
        clock: Clock,
        lease: Lease,
        site: Site,
        namespace: str | None,
        metrics: OperatorMetrics,
        log: Log,
        limits: Limits = NO_LIMITS,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._metrics, self._starts = metrics, Starts(spans, since=clock.wall())
        self._looked: dict[JobKey, float] = {}
        self._refused: dict[JobKey, str] = {}
        self._cluster, self._blobs, self._clock = cluster, blobs, clock
        self._lease, self._site, self._log = lease, site, log
        self._queue, self._pace = JobQueue(now=clock.now), Pace(seconds=COUNTS_SECONDS)
        self.cache = Cache(
            cluster=cluster,
            namespace=namespace,
            log=log,
            changed=self._queue.put,
            taints=site.kubernetes.interruption_taints if site.kubernetes else (),
            runtimes=site.kubernetes is not None,
        )
        self._held = HeldTime(
            blobs=blobs, clock=clock, lease=lease, log=log, seconds=self._usage_seconds
        )
        self._tails = Tails(cluster=cluster, blobs=blobs, lease=lease, log=log)
        self.retention = Retention(
            blobs=blobs,
            cache=self.cache,
            clock=clock,
            lease=lease,
            limits=limits,
            namespace=namespace,
            tell=self._tell,
            log=log,
        )

    async def work(self) -> None:
        """Take jobs from the queue for ever, some at a time; raises what the first pass raises."""
        workers = [asyncio.create_task(self._work(), name=f"jobs-{n}") for n in range(WORKERS)]
        workers.append(asyncio.create_task(self._held.run(), name="held time"))
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> NoReturn:
        while True:
            job = await self._queue.take()
            began = self._clock.now()
            outcome, after = await self._pass(job)
            self._metrics.passed(outcome, self._clock.now() - began)
            if outcome == "done":
                self._looked[job] = self._clock.now()
            self._queue.done(job, after)

    def stuck(self) -> str:
        """What is wrong if one pass takes too long, else empty: a liveness check."""
        taken = self._queue.longest()
        return f"one pass has taken {taken:.0f} s" if taken > STUCK_SECONDS else ""

    async def resync(self) -> None:
        """Look at every job now and then, whatever was missed.

        One after the other over the whole time: a change would wait behind all of them at once.
        """
        while True:
            jobs = self.cache.jobs()
            for job in jobs:
                await self._clock.sleep(RESYNC_SECONDS / len(jobs))
                self._queue.put(job)
            if not jobs:
                await self._clock.sleep(RESYNC_SECONDS)

    async def show(self) -> None:
        """Keep the metrics that are no counts, for ever."""
        while True:
            jobs, now = self.cache.jobs(), self._clock.now()
            self._looked = {job: self._looked.get(job, now) for job in jobs}
            self._metrics.shows(
                [pod for job in jobs for pod in self.cache.observe(job).pods],
                queued=len(self._queue),
                age=now - min(self._looked.values(), default=now),
                now=self._clock.wall(),
            )
            await self._clock.sleep(SHOW_SECONDS)

    async def _pass(self, job: JobKey) -> tuple[str, float | None]:
        """One look at one job: how it ended, and seconds until the next is due."""
        if not self.cache.heard:
            return "retry", RETRY_SECONDS
        seen = self.cache.observe(job)
        seen = msgspec.structs.replace(seen, refused=self._refused.pop(job, ""))
        self._metrics.saw(seen.pods, self._clock.wall())
        self._starts.saw(seen.job, seen.pods, self._clock.wall())
        plan = self._plan(job, seen)
        if plan is None:
            return "unjudged", RESYNC_SECONDS
        plan = self._paced(job, seen, plan)
        try:
            await self._perform(job, seen, plan)
        except Lost:
            raise
        except Conflict as error:
            self._log.debug("object changed meanwhile", job=job[1], why=str(error))
            return "conflict", CONFLICT_SECONDS
        except (NotFound, Refused, Temporary) as error:
            self._log.warning("pass not finished; trying again", job=job[1], why=str(error))
            again = REFUSED_SECONDS if job in self._refused and seen.refused else RETRY_SECONDS
            return "retry", again
        return "done", RETRY_SECONDS if seen.refused else plan.requeue_after

    def _plan(self, job: JobKey, seen: Observed) -> Plan | None:
        """The core's plan. A job that cannot be judged is left alone, and the others go on."""
        try:
            site = msgspec.structs.replace(self._site, usage_seconds=self._usage_seconds())
            return reconcile(seen, self._clock.wall(), site=site)
        except Exception:  # noqa: BLE001 - whatever is wrong with it is wrong with this job alone
            self._log.exception("job cannot be judged", job=job[1])
            return None

    def _paced(self, key: JobKey, seen: Observed, plan: Plan) -> Plan:
        """Without what can wait, and due again when that is to be written.

        Numbers of actors are written before an actor's object may go (`pace`).
        """
        if seen.job is None:
            self._pace.forget(key)
            return plan
        now = self._clock.now()
        job = self._pace.wait(key, "RLHFJob", plan.status, now)
        pool = self._pace.wait(key, "DecodePool", plan.pool_status, now)
        if any(patch.target.kind == "Pod" for patch in plan.patches):
            pool = 0.0 if "nextIndex" in (plan.pool_status or ()) else pool
        due = [each for each in (plan.requeue_after, job, pool) if each]
        return msgspec.structs.replace(
            plan,
            status=None if job else plan.status,
            pool_status=None if pool else plan.pool_status,
            requeue_after=min(due, default=None),
        )

    # --- writes, in an order that may be broken off anywhere ----------------------------------------

    async def _perform(self, job: JobKey, seen: Observed, plan: Plan) -> None:
        await self.retention.note(seen.job)
        await self._held.note(job, plan.usage)
        await self._tails.save(job, seen.pods)
        if plan.status is not None and seen.job is not None:
            await self._write_status(job, seen.job, plan.status)
        if plan.pool_status is not None and seen.pool is not None:
            await self._write_status(job, seen.pool, plan.pool_status)
        elif seen.pool is not None and (plan.creates or plan.deletes):
            await self._prove(job, seen.pool)
        for patch in plan.patches:
            await self._patch(patch)
        for resource in plan.creates:
            await self._create(resource)
        for deletion in plan.deletes:
            await self._delete(deletion)
        for note in plan.events:
            await self._tell(seen.job, note)

    def _usage_seconds(self) -> float:
        return max(self._site.usage_seconds, self.cache.pods / USAGES_PER_SECOND)

    async def _write_status(self, job: JobKey, target: Resource, status: Mapping[str, Any]) -> None:
        meta = target.metadata
        await self._write(
            self._cluster.patch_status(
                target.kind, meta.namespace, meta.name, status, meta.resource_version
            )
        )
        self._pace.written(job, target.kind)

    async def _prove(self, job: JobKey, pool: Resource) -> None:
        """Look whether the pool is still the one that was looked at, if its status waits.

        No actor is made or ended for an old one. A status that is written proves the same, but
        costs the API server several times as much.
        """
        if not self._pace.behind(job, "DecodePool"):
            return
        meta = pool.metadata
        found = await self._cluster.get(pool.kind, meta.namespace, meta.name)
        if found.metadata.resource_version != meta.resource_version:
            self.cache.learn(found)
            raise Conflict(f"DecodePool {meta.name} has changed since it was looked at")

    async def _patch(self, patch: Patch) -> None:
        """Merge into the very object that was looked at; its status may have moved meanwhile."""
        meta = patch.target.metadata
        kind, version = patch.target.kind, meta.resource_version
        if patch.target.kind == "RLHFJob":
            version = (
                await self._cluster.get(kind, meta.namespace, meta.name)
            ).metadata.resource_version
        await self._write(self._cluster.patch(kind, meta.namespace, meta.name, patch.body, version))

    async def _create(self, resource: Resource) -> None:
        try:
            await self._write(self._cluster.create(resource))
        except Conflict:
            self._log.debug("exists already", kind=resource.kind, name=resource.metadata.name)
        except Refused as error:
            if resource.kind == "Pod":
                meta = resource.metadata
                self._refused[meta.namespace, meta.labels[labels.JOB]] = str(error)
            raise

    async def _delete(self, deletion: Deletion) -> None:
        kind, meta = deletion.target.kind, deletion.target.metadata
        self._lease.check()
        try:
            await self._cluster.delete(
                kind, meta.namespace, meta.name, meta.uid, grace=deletion.grace
            )
        except NotFound:
            self._log.debug("gone already", kind=kind, name=meta.name)

    async def _write(self, write: Awaitable[Resource]) -> None:
        try:
            self._lease.check()
        except Lost:
            if asyncio.iscoroutine(write):
                write.close()
            raise
        self.cache.learn(await write)

    async def _tell(self, job: Resource | None, note: Note) -> None:
        """An event object; the same one again counts up."""
        if job is None:
            return
        self._metrics.told(note.reason)
        kind = "Warning" if note.warning else "Normal"
        self._log.info("event", job=job.metadata.name, reason=note.reason, message=note.message)
        name = _event_name(job, note)
        now = rfc3339(self._clock.wall())
        try:
            found = await self._cluster.get("Event", job.metadata.namespace, name)
        except NotFound:
            await self._create(_event(job, name, note, kind, now))
            return
        spec = {"count": int(found.spec.get("count", 1)) + 1, "lastTimestamp": now}
        await self._write(
            self._cluster.patch("Event", job.metadata.namespace, name, {"spec": spec})
        )


def _event_name(job: Resource, note: Note) -> str:
    text = f"{job.metadata.uid} {note.reason} {note.message}"
    return f"{job.metadata.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _event(job: Resource, name: str, note: Note, kind: str, now: str) -> Resource:
    meta = Meta(
        name=name,
        namespace=job.metadata.namespace,
        labels={labels.JOB: job.metadata.name},
        owner_references=(owner(job),),
    )
    spec = {
        "type": kind,
        "reason": note.reason,
        "message": note.message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "involvedObject": msgspec.to_builtins(owner(job)),
    }
    return Resource("v1", "Event", meta, spec=spec)
