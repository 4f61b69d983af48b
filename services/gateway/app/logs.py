"""Logs of a job's pods, ended ones too: as a list, or followed as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

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
from services.gateway.app.parts import JobName, Parts
from services.gateway.app.sse import EventStream, Streams, wants_stream
from services.gateway.core import listing
from services.gateway.core.lines import PodRole, Read, line, pods_of
from services.gateway.core.problems import Problem
from services.gateway.core.sse import Frame
from services.gateway.core.state import state_of

MAX_PODS = 64
_RELIST_SECONDS = 2.0
_QUEUE = 256

Role = Annotated[str | None, Query(max_length=63, description="Only pods of this role.")]
Pod = Annotated[str | None, Query(max_length=253, description="Only this pod.")]


class LogRoutes:
    """Handlers of /logs."""

    def __init__(self, *, parts: Parts, streams: Streams) -> None:
        self._parts = parts
        self._streams = streams

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
        tail: Annotated[int, Query(ge=0, le=10_000, description="Last lines per pod.")] = 200,
        last_event_id: LastEventId = None,
    ) -> Response:
        """The last lines of each pod (JSON), or all as they come (Accept: text/event-stream)."""
        job = await self._parts.job(name)
        pods = await self._pods(job, role, pod)
        if pod is not None and not pods:
            raise Problem("not-found", f"The job {name} has and had no pod {pod}.")
        if not wants_stream(accept):
            return await self._list(pods[:MAX_PODS], tail)
        read = listing.decode(last_event_id, Read) if last_event_id else None
        settings = self._parts.settings
        return EventStream(
            Following(routes=self, job=job, role=role, pod=pod, tail=tail, read=read).frames(),
            streams=self._streams,
            closing=self._parts.closing,
            heartbeat=settings.heartbeat_seconds,
            send_seconds=settings.send_seconds,
        )

    async def _list(self, pods: list[PodRole], tail: int) -> Response:
        items: list[dict[str, Any]] = []
        for source in pods:
            lines = [raw async for raw in self.lines(source, tail=tail, follow=False)]
            items += [line(source, number, raw) for number, raw in enumerate(lines, start=1)]
        return JSONResponse({"items": items, "pods": [source.pod for source in pods]})

    async def _pods(self, job: Resource, role: str | None, pod: str | None) -> list[PodRole]:
        of_job = {labels.JOB: job.metadata.name}
        namespace = self._parts.settings.namespace
        living, _ = await self._parts.cluster.list("Pod", namespace, of_job)
        return pods_of(living, await self._usages(job.metadata.uid), role=role, pod=pod)

    async def _usages(self, uid: str) -> list[Usage]:
        found = await self._parts.blobs.list(paths.usages(uid))
        return [usage.decode(await self._parts.blobs.get(path)) for path in found]

    async def lines(
        self, source: PodRole, *, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """Lines of one pod; a pod that has written nothing yet has none."""
        namespace = self._parts.settings.namespace
        try:
            async for raw in self._parts.cluster.logs(namespace, source.pod, tail, follow):
                yield raw
        except NotFound:
            return

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

    Lines are numbered from the start of what is kept; after a log was rotated, a resumed reader
    may see lines again or miss some.
    """

    def __init__(
        self,
        *,
        routes: LogRoutes,
        job: Resource,
        role: str | None,
        pod: str | None,
        tail: int,
        read: Read | None,
    ) -> None:
        self._routes = routes
        self._job = job.metadata
        self._role = role
        self._pod = pod
        self._tail = tail
        self._read = read or Read()
        self._resumed = read is not None
        self._queue: asyncio.Queue[tuple[PodRole, int, bytes] | None] = asyncio.Queue(_QUEUE)

    async def frames(self) -> AsyncIterator[Frame]:
        """Frames until the job has ended and every log is read."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(group))
            try:
                while (item := await self._queue.get()) is not None:
                    yield self._frame(*item)
                yield Frame(event="end", data=b"{}", id=listing.encode(self._read))
            finally:
                watching.cancel()

    def _frame(self, source: PodRole, number: int, raw: bytes) -> Frame:
        self._read = Read({**self._read.lines, source.pod: number})
        data = msgspec.json.encode(line(source, number, raw))
        return Frame(event="line", data=data, id=listing.encode(self._read))

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        tasks: dict[PodRole, asyncio.Task[int]] = {}
        try:
            while True:
                pods, over = await self._routes.pods_now(
                    self._job.name, self._job.uid, self._role, self._pod
                )
                for source in pods:
                    if _unread(tasks.get(source)):
                        tasks[source] = group.create_task(self._pump(source))
                if over:
                    break
                await self._routes.rest()
            if tasks:
                await asyncio.wait(tasks.values())
            await self._queue.put(None)
        finally:
            for task in tasks.values():
                task.cancel()

    async def _pump(self, source: PodRole) -> int:
        """Put the pod's lines on the queue (when it is full, wait); returns how many there were."""
        lines = [raw async for raw in self._routes.lines(source, tail=None, follow=False)]
        skip = self._read.lines.get(source.pod, 0) if self._resumed else len(lines) - self._tail
        number = 0
        async for raw in self._routes.lines(source, tail=None, follow=True):
            number += 1
            if number > skip:
                await self._queue.put((source, number, raw))
        return number


def _unread(task: asyncio.Task[int] | None) -> bool:
    """Whether a pod must be read (again): a young pod has no log to follow yet."""
    return task is None or (task.done() and task.result() == 0)
