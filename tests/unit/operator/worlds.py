"""A small cluster on virtual time: objects in memory, the operator's core, and a kubelet."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ebbtide import labels, objects
from ebbtide.errors import Conflict, NotFound
from ebbtide.objects import Key, key_of, rfc3339
from ebbtide.ports import Resource
from ebbtide.testing.cluster import MemoryTable
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.look import Observed
from ebbtide_operator.core.plan import Note, Plan
from ebbtide_operator.core.reconcile import reconcile
from ebbtide_operator.core.site import Site
from ebbtide_operator.core.status import Own, read_own
from ebbtide_operator.podspec import RUNNER_FINALIZER, PodView, view

JOB = Key("RLHFJob", "default", "job")
POOL = Key("DecodePool", "default", "job")
EPOCH = 1_700_000_000.0


class World:
    """One job. `step` lets the operator look once; the rest plays users, pods and the kubelet."""

    def __init__(self, job: Resource | None = None, *, site: Site | None = None) -> None:
        self.table = MemoryTable()
        self.now = EPOCH
        self.site = site or Site()
        self.events: list[Note] = []
        self.runtime: Resource | None = None
        self.interrupted: dict[str, str] = {}
        self.held: dict[str, float | None] = {}
        self.made: list[str] = []
        self._uids = 0
        self.job_uid = self.create(job or a_job()).metadata.uid

    # --- the API server -------------------------------------------------------------------------

    def create(self, resource: Resource) -> Resource:
        self._uids += 1
        return objects.create(self.table, resource, uid=f"u{self._uids}", now=self.stamp)

    def patch(self, key: Key, body: Mapping[str, Any], expect: str | None = None) -> None:
        objects.patch(self.table, key, body, expect=expect, now=self.stamp)

    def patch_status(self, key: Key, body: Mapping[str, Any], expect: str | None = None) -> None:
        objects.patch_status(self.table, key, body, expect=expect, now=self.stamp)

    def delete(self, key: Key, grace: float | None = None) -> None:
        objects.delete(self.table, key, uid=None, now=self.stamp, grace=grace)

    @property
    def stamp(self) -> str:
        return rfc3339(self.now)

    @property
    def job(self) -> Resource | None:
        return self.table.load(JOB)

    @property
    def own(self) -> Own:
        assert self.job is not None
        return read_own(self.job)

    def reason(self, kind: str) -> str:
        condition = self.own.condition(kind)
        assert condition is not None, f"{kind} was never set"
        return condition.reason

    def pods(self, role: str = "") -> list[PodView]:
        found = [view(one) for one in self.table.objects.values() if one.kind == "Pod"]
        return [pod for pod in found if role in ("", pod.label(labels.ROLE))]

    def alive(self, role: str = "") -> list[str]:
        return sorted(pod.name for pod in self.pods(role) if pod.alive)

    # --- the operator ---------------------------------------------------------------------------

    def plan(self) -> Plan:
        pods = tuple(self.pods())
        seen = Observed(self.job, self.table.load(POOL), pods, self.interrupted, self.runtime)
        return reconcile(seen, self.now, site=self.site)

    def apply(self, plan: Plan, *, writes: int = 1_000_000) -> bool:
        """Perform the plan in the shell's order; False if it broke off after `writes` writes."""
        for usage in plan.usage:
            self.held[usage.pod] = usage.ended_at
        for n, write in enumerate(self._writes(plan)):
            if n >= writes:
                return False
            try:
                write()
            except (Conflict, NotFound):
                return True  # somebody was faster: look again
        self.events += plan.events
        return True

    def _writes(self, plan: Plan) -> Iterable[Any]:
        if plan.status is not None:
            status, version = plan.status, self.job.metadata.resource_version if self.job else ""
            yield lambda: self.patch_status(JOB, status, version)
        if plan.pool_status is not None:
            pool = plan.pool_status
            yield lambda: self.patch_status(POOL, pool)
        for patch in plan.patches:
            yield lambda p=patch: self.patch(
                key_of(p.target), p.body, p.target.metadata.resource_version
            )
        for resource in plan.creates:
            yield lambda r=resource: self._make(r)
        for deletion in plan.deletes:
            yield lambda d=deletion: self.delete(key_of(d.target), d.grace)

    def _make(self, resource: Resource) -> None:
        self.create(resource)
        self.made.append(resource.metadata.name)

    def settle(self, limit: int = 50) -> None:
        """Let the operator look until nothing is left to do at this moment."""
        for _ in range(limit):
            plan = self.plan()
            self.apply(plan)
            if plan.idle:
                return
        raise AssertionError(f"no rest after {limit} looks: {plan}")

    # --- the kubelet ----------------------------------------------------------------------------

    def run_pods(self) -> None:
        """Start what is pending, end what was deleted, all at once."""
        for pod in self.pods():
            if pod.leaving:
                self.finish(pod.name, code=0)
                self._let_go(pod.name)
            elif pod.status.phase == "Pending":
                self.start(pod.name)

    def start(self, name: str) -> None:
        key = Key("Pod", "default", name)
        finalizers = [*self._meta(name).finalizers, RUNNER_FINALIZER]
        self.patch(key, {"metadata": {"finalizers": finalizers}})
        status = {"phase": "Running", "ready": True, "startedAt": self.stamp, "pid": 7}
        self.patch_status(key, status)

    def finish(self, name: str, *, code: int | None = None, signal: int | None = None) -> None:
        """End a process; one that never ran is only let go."""
        pod = next(pod for pod in self.pods() if pod.name == name)
        if pod.finished or not pod.status.started_at:
            return
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "ready": False,
            "finishedAt": self.stamp,
            "exitCode": code,
            "signal": signal,
            "message": f"last words of {name}",
        }
        self.patch_status(Key("Pod", "default", name), status)

    def _let_go(self, name: str) -> None:
        left = [one for one in self._meta(name).finalizers if one != RUNNER_FINALIZER]
        self.patch(Key("Pod", "default", name), {"metadata": {"finalizers": left}})

    def _meta(self, name: str) -> Any:
        return objects.get(self.table, Key("Pod", "default", name)).metadata

    # --- whole scenes ---------------------------------------------------------------------------

    def rest(self, limit: int = 50, *, seconds: float = 1.0) -> None:
        """Operator and kubelet in turn until nothing moves; a round takes `seconds`."""
        for _ in range(limit):
            before = self.table.latest
            self.settle()
            self.run_pods()
            self.now += seconds
            if self.table.latest == before:
                return
        raise AssertionError("the world does not come to rest")

    def progress(self, **fields: Any) -> None:
        """What the planner reports."""
        self.patch_status(JOB, {"progress": {"lastProgressTime": self.stamp, **fields}})

    def say(self, name: str, **status: Any) -> None:
        """What a kubelet tells of a pod."""
        self.patch_status(Key("Pod", "default", name), status)

    def kill(self, role: str, *, code: int | None = None, signal: int | None = None) -> str:
        """End the first living pod of the role; returns its name."""
        name = self.alive(role)[0]
        self.finish(name, code=code, signal=signal)
        return name


def running(job: Resource | None = None, *, site: Site | None = None) -> World:
    """A world whose job runs and has made its first progress."""
    world = World(job, site=site)
    world.rest()
    world.progress(step=1)
    world.rest()
    return world


def json_of(value: object) -> bytes:
    """For comparing whole values."""
    return msgspec.json.encode(value, order="deterministic")
