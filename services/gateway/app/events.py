"""The events of a job: as a list, or as a stream that resumes by Last-Event-ID."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import JSONResponse, Response

from ebbtide import labels, paths
from ebbtide.api import EventList
from ebbtide.errors import NotFound
from ebbtide.ports import Resource
from services.gateway.app.documents import add, also_stream, answers
from services.gateway.app.endings import ending
from services.gateway.app.parts import JobName, Parts
from services.gateway.app.sse import EventStream, Streams, wants_stream
from services.gateway.core import feed, listing
from services.gateway.core.feed import Seen
from services.gateway.core.sse import Frame
from services.gateway.core.state import State, state_of

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=1024)]
Accept = Annotated[str, Header(include_in_schema=False)]


class EventRoutes:
    """Handlers of /events."""

    def __init__(self, *, parts: Parts, streams: Streams) -> None:
        self._parts = parts
        self._streams = streams

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        responses = also_stream(answers(200, EventList, 400, 404, 422))
        add(router, "GET", "/v1/jobs/{name}/events", self.get_events, responses)

    async def get_events(
        self,
        name: JobName,
        accept: Accept = "",
        after: Annotated[str | None, Query(max_length=1024, description="Cursor.")] = None,
        limit: Annotated[int, Query(ge=1, le=100, description="At most so many.")] = 100,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Events after a cursor (JSON), or as they happen (Accept: text/event-stream)."""
        job = await self._parts.job(name)
        seen = feed.parse(last_event_id or after, job.metadata.uid)
        if not wants_stream(accept):
            return await self._list(job, seen, limit)
        if seen.ended:
            return Response(status_code=204)  # tells a browser to stop reconnecting
        settings = self._parts.settings
        return EventStream(
            self._follow(name, seen),
            streams=self._streams,
            closing=self._parts.closing,
            heartbeat=settings.heartbeat_seconds,
            send_seconds=settings.send_seconds,
        )

    async def _list(self, job: Resource, seen: Seen, limit: int) -> Response:
        events, after = [], seen
        async for event, cursor in self._news(job, seen):
            events.append(event)
            after = cursor
            if len(events) >= limit:
                break
        following = events[-1]["id"] if events else listing.encode(after)
        return JSONResponse({"items": events, "next": following})

    async def _follow(self, name: str, seen: Seen) -> AsyncIterator[Frame]:
        version = ""
        while not seen.ended:
            job = await self._job_of(name, seen.uid)
            if job is None:
                gone = State("Cancelled", "Deleted", "the job was deleted")
                event, seen = feed.end_event(gone, seen)
                yield _frame(event)
                return
            moved, version = job.metadata.resource_version != version, job.metadata.resource_version
            async for event, cursor in self._news(job, seen):
                if moved and cursor.ended:  # the job as it ended comes before the end
                    state = await ending(job, blobs=self._parts.blobs)
                    yield _frame(feed.progress_event(job, seen, state))
                seen = cursor
                yield _frame(event)
            if moved and not seen.ended:
                yield _frame(feed.progress_event(job, seen))
            if not seen.ended:
                await self._parts.clock.sleep(self._parts.settings.poll_seconds)

    async def _job_of(self, name: str, uid: str) -> Resource | None:
        try:
            job = await self._parts.job(name)
        except NotFound:
            return None
        return job if job.metadata.uid == uid else None

    async def _news(self, job: Resource, seen: Seen) -> AsyncIterator[tuple[dict[str, Any], Seen]]:
        """What `seen` does not know yet; the end comes when nothing else is left to tell."""
        if seen.ended:
            return
        events, seen = feed.state_events(job, seen)
        for event, cursor in [*events, *feed.note_events(job, await self._notes(job), seen)]:
            yield event, cursor
            seen = cursor
        while (found := await self._report(job.metadata.uid, seen.step)) is not None:
            number, report = found
            event, seen = feed.step_event(report, number, seen)
            yield event, seen
        if state_of(job).terminal:
            yield feed.end_event(await ending(job, blobs=self._parts.blobs), seen)

    async def _notes(self, job: Resource) -> list[Resource]:
        of_job = {labels.JOB: job.metadata.name}
        found, _ = await self._parts.cluster.list("Event", job.metadata.namespace, of_job)
        return found

    async def _report(self, uid: str, step: int) -> tuple[int, Mapping[str, Any]] | None:
        """The report of `step`; a lost one is passed over once its successor is there."""
        for number in (step, step + 1):
            try:
                data = await self._parts.blobs.get(paths.step_report(uid, number))
            except NotFound:
                continue
            return number, msgspec.json.decode(data, type=dict[str, Any])
        return None


def _frame(event: Mapping[str, Any]) -> Frame:
    return Frame(event=str(event["type"]), data=msgspec.json.encode(event), id=str(event["id"]))
