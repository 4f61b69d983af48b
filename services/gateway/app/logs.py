"""Logs of a job's pods, ended ones too: as a list, or followed as a stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from ebbtide import labels, paths, usage
from ebbtide.api import LogList
from ebbtide.errors import NotFound
from ebbtide.ports import Resource
from ebbtide.usage import Usage
from services.gateway.app.documents import add, also_stream, answers
from services.gateway.app.events import Accept, LastEventId
from services.gateway.app.kept import Lines
from services.gateway.app.parts import JobName, Parts
from services.gateway.app.sse import EventStream, Streams, wants_stream
from services.gateway.core import listing
from services.gateway.core.lines import (
    Line,
    PodRole,
    Read,
    in_order,
    of_step,
    pods_of,
    stamped,
    view,
)
from services.gateway.core.problems import Problem
from services.gateway.core.sse import Frame
from services.gateway.core.state import state_of

MAX_PODS = 64
_RELIST_SECONDS = 2.0
_QUEUE = 256
_AT_ONCE = 8
"""Logs that are read side by side."""

Role = Annotated[str | None, Query(max_length=63, description="Only pods of this role.")]
Pod = Annotated[str | None, Query(max_length=253, description="Only this pod.")]
Step = Annotated[
    int | None, Query(ge=0, description="Only lines that name this step or a sample of it.")
]


class Said(NamedTuple):
    """What was read of a pod's log; it has `number` lines in all."""

    source: PodRole
    lines: Sequence[Line]
    number: int


class LogRoutes:
    """Handlers of /logs."""

    def __init__(self, *, parts: Parts, streams: Streams) -> None:
        self._parts = parts
        self._streams = streams
        namespace = parts.settings.namespace
        self._lines = Lines(cluster=parts.cluster, blobs=parts.blobs, namespace=namespace)

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        responses = also_stream(answers(200, LogList, 400, 404, 422))
        add(router, "GET", "/v1/jobs/{name}/logs", self.get_logs, responses)

    async def get_logs(
        self,
        name: JobName,
        *,
        accept: Accept = "",
        role: Role = None,
        pod: Pod = None,
        step: Step = None,
        tail: Annotated[int, Query(ge=0, le=10_000, description="Last lines per pod.")] = 200,
        last_event_id: LastEventId = None,
    ) -> Response:
        """The last lines of each pod in order of time, or all as they come (text/event-stream).

        Of very many pods the 64 that lived last are shown.
        """
        job = await self._parts.job(name)
        pods = await self._pods(job, role, pod)
        if pod is not None and not pods:
            raise Problem("not-found", f"The job {name} has and had no pod {pod}.")
        if not wants_stream(accept):
            return await self._list(job.metadata.uid, pods, tail, step)
        read = listing.decode(last_event_id, Read) if last_event_id else None
        following = Following(
            routes=self, job=job, role=role, pod=pod, step=step, tail=tail, read=read
        )
        settings = self._parts.settings
        return EventStream(
            following.frames(),
            streams=self._streams,
            closing=self._parts.closing,
            heartbeat=settings.heartbeat_seconds,
            send_seconds=settings.send_seconds,
        )

    async def _list(self, uid: str, pods: list[PodRole], tail: int, step: int | None) -> Response:
        logs = await self.backlog(uid, pods[:MAX_PODS], {}, tail, step)
        items = [view(said) for said in in_order(log.lines for log in logs)]
        return JSONResponse({"items": items, "pods": sorted(source.pod for source in pods)})

    async def backlog(
        self,
        uid: str,
        pods: Sequence[PodRole],
        read: Mapping[str, int],
        tail: int,
        step: int | None,
    ) -> list[Said]:
        """What each pod has said of the step: the last lines, or what comes behind `read`."""
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def one(source: PodRole) -> Said:
            async with at_once:
                return await self._said(uid, source, read.get(source.pod), tail, step)

        return list(await asyncio.gather(*map(one, pods)))

    async def _said(
        self, uid: str, source: PodRole, read: int | None, tail: int, step: int | None
    ) -> Said:
        last: deque[tuple[int, bytes]] = deque(maxlen=tail if read is None else None)
        number = 0
        async for raw in self.lines(uid, source, follow=False):
            number += 1
            if number > (read or 0) and of_step(raw, step):
                last.append((number, raw))
        return Said(source, stamped(source, last), number)

    async def _pods(self, job: Resource, role: str | None, pod: str | None) -> list[PodRole]:
        of_job = {labels.JOB: job.metadata.name}
        namespace = self._parts.settings.namespace
        living, _ = await self._parts.cluster.list("Pod", namespace, of_job)
        return pods_of(living, await self._usages(job.metadata.uid), role=role, pod=pod)

    async def _usages(self, uid: str) -> list[Usage]:
        found = await self._parts.blobs.list(paths.usages(uid))
        return [usage.decode(await self._parts.blobs.get(path)) for path in found]

    def lines(self, uid: str, source: PodRole, *, follow: bool) -> AsyncIterator[bytes]:
        """All lines of one pod, kept ones where the cluster has none."""
        return self._lines.follow(uid, source, follow=follow)

    async def pods_now(
        self, name: str, uid: str, role: str | None, pod: str | None
    ) -> tuple[list[PodRole], bool]:
        """The pods of the job, and whether no more can come."""
        try:
            job = await self._parts.job(name)
        except NotFound:
            return [], True
        if job.metadata.uid != uid:
            return [], True
        return (await self._pods(job, role, pod))[:MAX_PODS], state_of(job).terminal

    async def rest(self) -> None:
        """Wait before the pods are looked at again."""
        await self._parts.clock.sleep(_RELIST_SECONDS)


class Following:
    """One client's stream over all pods of a job, those that start later too.

    What was said before comes in one order of time, what is said meanwhile as it comes. Lines are numbered from the start of what is kept; after a log was rotated, a resumed reader
    may see lines again or miss some.
    """

    def __init__(
        self,
        *,
        routes: LogRoutes,
        job: Resource,
        role: str | None,
        pod: str | None,
        step: int | None,
        tail: int,
        read: Read | None,
    ) -> None:
        self._routes = routes
        self._job = job.metadata
        self._role = role
        self._pod = pod
        self._step = step
        self._tail = tail
        self._read = read or Read()
        self._resumed = read is not None
        self._queue: asyncio.Queue[Line | None] = asyncio.Queue(_QUEUE)

    async def frames(self) -> AsyncIterator[Frame]:
        """Frames until the job has ended and every log is read."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(group))
            try:
                while (said := await self._queue.get()) is not None:
                    yield self._frame(said)
                yield Frame(event="end", data=b"{}", id=listing.encode(self._read))
            finally:
                watching.cancel()

    def _frame(self, said: Line) -> Frame:
        self._read = Read({**self._read.lines, said.source.pod: said.number})
        return Frame(
            event="line", data=msgspec.json.encode(view(said)), id=listing.encode(self._read)
        )

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        tasks: dict[PodRole, asyncio.Task[int]] = {}
        try:
            while True:
                pods, over = await self._routes.pods_now(
                    self._job.name, self._job.uid, self._role, self._pod
                )
                fresh = [source for source in pods if _unread(tasks.get(source))]
                for source, number in (await self._catch_up(fresh)).items():
                    tasks[source] = group.create_task(self._pump(source, number))
                if over:
                    break
                await self._routes.rest()
            if tasks:
                await asyncio.wait(tasks.values())
            await self._queue.put(None)
        finally:
            for task in tasks.values():
                task.cancel()

    async def _catch_up(self, pods: Sequence[PodRole]) -> Mapping[PodRole, int]:
        """Put what they have said on the queue, as one; returns the last number of each."""
        before = {source.pod: 0 for source in pods} if self._resumed else {}
        read = before | dict(self._read.lines)
        logs = await self._routes.backlog(self._job.uid, pods, read, self._tail, self._step)
        for said in in_order(log.lines for log in logs):
            await self._queue.put(said)
        return {log.source: log.number for log in logs}

    async def _pump(self, source: PodRole, told: int) -> int:
        """Put lines behind number `told` on the queue; returns how many the pod has."""
        number, at = 0, ""
        async for raw in self._routes.lines(self._job.uid, source, follow=True):
            number += 1
            if number > told and of_step(raw, self._step):
                (said,) = stamped(source, [(number, raw)])
                at = said.at or at
                await self._queue.put(msgspec.structs.replace(said, at=at))
        return number


def _unread(task: asyncio.Task[int] | None) -> bool:
    """Whether a pod must be read (again): a young pod has no log to follow yet."""
    return task is None or (task.done() and task.result() == 0)
