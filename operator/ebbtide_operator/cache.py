"""What the operator knows of the cluster: a cache fed by list and watch, read job by job."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection

import msgspec

from ebbtide import labels
from ebbtide.errors import Conflict, Temporary
from ebbtide.logs import Log
from ebbtide.objects import Key, key_of
from ebbtide.ports import Cluster, Meta, Resource
from ebbtide_operator.core.look import Observed
from ebbtide_operator.podspec import PodView, view
from ebbtide_operator.worklist import JobKey

KINDS = ("RLHFJob", "DecodePool", "Pod")
RUNTIME = "ClusterRLHFRuntime"
_GONE = 10_000
"""Deletions that are remembered: older news of an object comes within seconds, or not at all."""
_NOWHERE = Meta(name="").namespace
"""Namespace of objects that have none."""


class Cache:
    """`changed` is told the job of every object that changes.

    `taints`: keys that say that a node is about to go; without any, nodes are not looked at.
    `runtimes`: whether there are ClusterRLHFRuntime objects.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        namespace: str | None,
        log: Log,
        changed: Callable[[JobKey], None],
        taints: Collection[str] = (),
        runtimes: bool = False,
    ) -> None:
        self._cluster, self._namespace = cluster, namespace
        more = [("Node", bool(taints)), (RUNTIME, runtimes)]
        self._kinds = (*KINDS, *(kind for kind, wanted in more if wanted))
        self._taints = taints
        self._log, self._changed = log, changed
        self._objects: dict[Key, Resource] = {}
        self._of_job: dict[JobKey, set[Key]] = defaultdict(set)
        self._views: dict[
            Key, PodView | None
        ] = {}  # of pods that were looked at since they changed
        self._gone: dict[Key, int] = {}  # versions of the last deletions since the last list
        self._listed = -1  # version of the last list: what it lacked was gone by then
        self._interrupted: dict[str, str] = {}  # why a node is about to go, by its name
        self.heard = False
        """Whether everything was listed once."""
        self.trouble = ""
        """Why nothing is heard now, if so; what is cached stays as it was."""

    async def follow(self) -> None:
        """List, then watch, for ever; lists again when the watch cannot go on."""
        while True:
            try:
                version = await self._list()
                self.heard, self.trouble = True, ""
                async for change in self._cluster.watch(self._kinds, self._namespace, version):
                    if change.type == "DELETED":
                        self._bury(change.resource)
                    elif change.type != "BOOKMARK":
                        self._take(change.resource)
            except Conflict:
                self._log.info("watch history was pruned; listing again")
            except Temporary as error:
                self.trouble = str(error)
                self._log.warning("objects are not heard of; listing again", why=str(error))
                await asyncio.sleep(error.delay)

    def observe(self, job: JobKey) -> Observed:
        """All objects of one job. Pods of an earlier job of the same name count too."""
        found = [self._objects[key] for key in self._of_job.get(job, ())]
        pools = [r for r in found if r.kind == "DecodePool"]
        return Observed(
            job=self._objects.get(Key("RLHFJob", *job)),
            pool=pools[0] if pools else None,
            pods=tuple(v for r in found if r.kind == "Pod" and (v := self._view(key_of(r), r))),
            interrupted=self._interrupted,
            runtime=self._runtime(job),
        )

    def jobs(self) -> list[JobKey]:
        """Every job that has any object."""
        return [job for job, keys in self._of_job.items() if keys]

    @property
    def pods(self) -> int:
        """About how many pods there are: objects of jobs, without jobs and pools."""
        return max(0, len(self._objects) - 2 * len(self._of_job))

    async def _list(self) -> str:
        """Everything now; the version from which the first list must be watched on."""
        since = ""
        fresh: dict[Key, Resource] = {}
        for kind in self._kinds:
            found, version = await self._cluster.list(kind, self._namespace)
            since = since or version
            fresh.update({key_of(resource): resource for resource in found})
        self._gone.clear()
        self._listed = -1
        for key in set(self._objects) - set(fresh):
            self._drop(key)
        for resource in fresh.values():
            self._take(resource)
        self._listed = int(since)
        return since

    def _take(self, resource: Resource) -> None:
        key = key_of(resource)
        known = self._objects.get(key)
        newest = _version(known) if known is not None else self._gone.get(key, self._listed)
        if newest >= _version(resource):
            return
        self._objects[key] = resource
        self._views.pop(key, None)
        if resource.kind == "Node":
            self._judge_node(resource)
        if resource.kind == RUNTIME:
            self._tell_users(resource)
        job = _job_of(resource)
        if job is not None:
            self._of_job[job].add(key)
            self._changed(job)

    def _drop(self, key: Key) -> None:
        resource = self._objects.pop(key, None)
        self._views.pop(key, None)
        self._interrupted.pop(key.name if key.kind == "Node" else "", None)
        job = _job_of(resource) if resource else None
        if job is None:
            return
        self._of_job[job].discard(key)
        if not self._of_job[job]:
            del self._of_job[job]
        self._changed(job)

    def _bury(self, last: Resource) -> None:
        """Forget a deleted object, and that older news of it may still come."""
        key = key_of(last)
        known = self._objects.get(key)
        if known is None or _version(known) <= _version(last):
            self._gone[key] = _version(last)
            if len(self._gone) > _GONE:
                del self._gone[next(iter(self._gone))]
            self._drop(key)

    def _runtime(self, job: JobKey) -> Resource | None:
        found = self._objects.get(Key("RLHFJob", *job))
        name = _runtime_of(found) if found else ""
        return self._objects.get(Key(RUNTIME, _NOWHERE, name))

    def _tell_users(self, runtime: Resource) -> None:
        """Look at the jobs that name the runtime."""
        for key, resource in list(self._objects.items()):
            if key.kind == "RLHFJob" and _runtime_of(resource) == runtime.metadata.name:
                self._changed((key.namespace, key.name))

    def _judge_node(self, node: Resource) -> None:
        """Note whether the node is about to go, and look at the jobs that have pods there."""
        name, before = node.metadata.name, dict(self._interrupted)
        found = [taint for taint in node.spec.get("taints", ()) if taint in self._taints]
        self._interrupted.pop(name, None)
        if found:
            self._interrupted[name] = found[0]
        if self._interrupted == before:
            return
        for resource in list(self._objects.values()):
            job = _job_of(resource) if resource.spec.get("nodeName") == name else None
            if job is not None:
                self._changed(job)

    def learn(self, resource: Resource) -> None:
        """Take in the answer to a write of our own before the watch tells it."""
        if resource.kind not in self._kinds:
            return  # an event: nobody watches it for us
        if resource.metadata.deletion_timestamp and not resource.metadata.finalizers:
            self._bury(resource)  # that write removed the last finalizer
        else:
            self._take(resource)

    def _view(self, key: Key, resource: Resource) -> PodView | None:
        if key not in self._views:
            self._views[key] = self._read(resource)
        return self._views[key]

    def _read(self, resource: Resource) -> PodView | None:
        try:
            return view(resource)
        except msgspec.ValidationError as error:
            self._log.warning("not a pod of ours", pod=resource.metadata.name, why=str(error))
            return None


def _runtime_of(job: Resource) -> str:
    return str((job.spec.get("runtimeRef") or {}).get("name", ""))


def _version(resource: Resource) -> int:
    return int(resource.metadata.resource_version or 0)


def _job_of(resource: Resource) -> JobKey | None:
    meta = resource.metadata
    if resource.kind == "RLHFJob":
        return meta.namespace, meta.name
    name = meta.labels.get(labels.JOB)
    return (meta.namespace, name) if name else None
