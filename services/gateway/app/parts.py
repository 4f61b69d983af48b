"""The collaborators that the routes share, and what each of them needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Path, Request
from starlette.responses import JSONResponse, Response

from ebbtide.ports import Blobs, Clock, Cluster, Resource, Trials
from ebbtide.spec import NAME_PATTERN
from services.gateway.core.preconditions import etag
from services.gateway.core.state import State
from services.gateway.core.views import job_view
from services.gateway.settings import GatewaySettings

KIND = "RLHFJob"

JobName = Annotated[
    str, Path(min_length=1, max_length=40, pattern=NAME_PATTERN, description="Name of the job.")
]
IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="ETag that the job must still have.")
]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What `build` was given.

    `closing` is set when the process drains: streams end then. `trials`: where pods can be tried
    out before a job is taken, if anywhere.
    """

    settings: GatewaySettings
    cluster: Cluster
    blobs: Blobs
    clock: Clock
    closing: asyncio.Event
    trials: Trials | None = None

    async def job(self, name: str) -> Resource:
        """The job object; raises NotFound."""
        return await self.cluster.get(KIND, self.settings.namespace, name)


def tenant(request: Request) -> str:
    """Whose token the request carried."""
    found: str = request.state.tenant
    return found


def job_response(job: Resource, *, status: int = 200, state: State | None = None) -> Response:
    """The job with its ETag; `state` where more is known of it than the object says."""
    headers = {"ETag": etag(job.metadata.resource_version)}
    return JSONResponse(job_view(job, state), status_code=status, headers=headers)
