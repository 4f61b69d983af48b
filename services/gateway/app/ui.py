"""Pages for people at /ui: the same answers as the API's, drawn on the server.

They only read. A browser signs in with a token, which it keeps in a cookie that scripts and other
sites cannot use.
"""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ebbtide.api import CostReport, EventList, Job, JobList, SampleList, SliceList
from ebbtide.report.data import ReportData
from ebbtide.report.ui import Shown, compare_page, job_page, jobs_page, login_page
from ebbtide.reports import StepReport
from services.gateway.app.artifacts import ArtifactRoutes
from services.gateway.app.costs import CostRoutes
from services.gateway.app.events import EventRoutes
from services.gateway.app.jobs import JobRoutes
from services.gateway.app.parts import JobName
from services.gateway.app.slices import Key, SliceRoutes
from services.gateway.core.slices import KEYS

HOME, SIGN_IN, COOKIE = "/ui", "/ui/login", "ebbtide"
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_SAMPLES = 12
_MOST_STEPS = 1000
_MOST_TOKEN = 1024


class Api:
    """The routes' own handlers, as the pages ask them."""

    def __init__(
        self,
        *,
        jobs: JobRoutes,
        artifacts: ArtifactRoutes,
        costs: CostRoutes,
        events: EventRoutes,
        slices: SliceRoutes,
    ) -> None:
        self._jobs, self._artifacts, self._costs = jobs, artifacts, costs
        self._events, self._slices = events, slices

    async def jobs(self) -> list[Job]:
        """The newest ones."""
        return JobList.model_validate(_said(await self._jobs.list_jobs())).items

    async def data(self, name: str) -> ReportData:
        """What a report is drawn from."""
        job = Job.model_validate(_said(await self._jobs.get_job(name)))
        found = _said(await self._artifacts.get_metrics(name, limit=_MOST_STEPS))["items"]
        steps = [StepReport.model_validate_json(json.dumps(raw)) for raw in found]
        cost = CostReport.model_validate(_said(await self._costs.get_cost(name)))
        return ReportData(job=job, steps=tuple(steps), cost=cost)

    async def samples(self, name: str) -> SampleList:
        """Some of the last step's."""
        said = _said(await self._artifacts.get_samples(name, limit=_SAMPLES))
        return SampleList.model_validate(said)

    async def slices(self, name: str, by: list[Key]) -> SliceList:
        """Of the last step's."""
        answer = await self._slices.get_slices(name, by=by)
        return SliceList.model_validate_json(bytes(answer.body))

    async def events(self, name: str) -> EventList:
        """The first hundred, and the newest of them last."""
        return EventList.model_validate(_said(await self._events.get_events(name)))


class UiRoutes:
    """Handlers of the pages."""

    def __init__(self, *, api: Api) -> None:
        self._api = api

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class; they are no part of the API's document."""
        for path, handler, method in (
            (HOME, self.show_jobs, "GET"),
            (f"{HOME}/jobs/{{name}}", self.show_job, "GET"),
            (f"{HOME}/compare", self.show_both, "GET"),
            (SIGN_IN, self.take_token, "POST"),
        ):
            router.add_api_route(path, handler, methods=[method], include_in_schema=False)

    async def show_jobs(self) -> Response:
        """All jobs, newest first."""
        return _html(jobs_page(await self._api.jobs()))

    async def show_job(
        self,
        name: JobName,
        *,
        live: Annotated[bool, Query()] = True,
        by: Annotated[list[Key] | None, Query(max_length=len(KEYS))] = None,
    ) -> Response:
        """One job; the page loads itself again while the job runs."""
        samples = await self._api.samples(name)
        shown = Shown(
            data=await self._api.data(name),
            step=samples.step,
            samples=samples.items,
            events=(await self._api.events(name)).items,
            slices=await self._api.slices(name, by or ["task"]),
            keys=KEYS,
            live=live,
        )
        return _html(job_page(shown))

    async def show_both(
        self,
        a: Annotated[str, Query(max_length=40)],
        b: Annotated[str, Query(max_length=40)],
    ) -> Response:
        """Two jobs side by side."""
        return _html(compare_page(await self._api.data(a), await self._api.data(b)))

    async def take_token(self, request: Request) -> Response:
        """Keep the token in a cookie; whether it is known shows at the next page."""
        body = (await request.body()).decode("utf-8", "replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        if not token or len(token) > _MOST_TOKEN or not token.isascii():
            return sign_in(wrong=True)
        answer = RedirectResponse(HOME, status_code=303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, token, path=HOME, httponly=True, samesite="strict", secure=secure)
        return answer


def sign_in(*, wrong: bool) -> Response:
    """The page that asks for a token; `wrong`: one was given, and is not known."""
    return _html(login_page(wrong=wrong), status=401)


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers={"Content-Security-Policy": _POLICY})


def _said(answer: Response) -> Any:
    return json.loads(bytes(answer.body))
