"""GET /v1/metrics: figures of all jobs for Prometheus; GET /v1/targets: what else to scrape."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ebbtide import labels
from ebbtide.api import ScrapeTarget
from ebbtide.errors import NotFound
from ebbtide.metrics import render
from ebbtide.objects import unix_time
from ebbtide.ports import Resource
from services.gateway.app.documents import add, answers
from services.gateway.app.held import HeldTime
from services.gateway.app.histories import Histories
from services.gateway.app.parts import KIND, Parts
from services.gateway.app.tallies import Tallies
from services.gateway.core import cost
from services.gateway.core.exposition import Facts, exposition, process_target, targets
from services.gateway.core.state import conditions, state_of

SHOWN_SECONDS = 900.0
"""How long the figures of an ended job are shown: a few scrapes at least."""
_MOST = 64


class FigureRoutes:
    """Handlers; sums are kept by job, so a scrape reads only what is new."""

    def __init__(
        self, *, parts: Parts, histories: Histories, tallies: Tallies, held: HeldTime
    ) -> None:
        self._parts, self._histories, self._tallies = parts, histories, tallies
        self._held = held

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        plain = {"response_class": PlainTextResponse}
        add(router, "GET", "/v1/metrics", self.get_figures, answers(200, None), **plain)
        found = answers(200, None)
        found[200]["model"] = list[ScrapeTarget]
        add(router, "GET", "/v1/targets", self.get_targets, found)

    async def get_figures(self) -> Response:
        """Figures of jobs that run or ended lately, in the text format of Prometheus."""
        namespace = self._parts.settings.namespace
        jobs, _ = await self._parts.cluster.list(KIND, namespace)
        now = self._parts.clock.wall()
        shown = [job for job in jobs if _is_shown(job, now)]
        newest = sorted(shown, key=lambda j: j.metadata.creation_timestamp)[-_MOST:]
        body, media_type = render(exposition(jobs, [await self._facts(job) for job in newest]))
        return Response(body, headers={"Content-Type": media_type})

    async def get_targets(self) -> Response:
        """What Prometheus can scrape, in the form of its HTTP service discovery."""
        settings = self._parts.settings
        pods, _ = await self._parts.cluster.list("Pod", settings.namespace)
        found = targets(pods)
        if address := await self._operator():
            found.append(process_target(address, "operator"))
        found.append(process_target(f"{settings.host}:{settings.port}", "gateway"))
        return JSONResponse(found)

    async def _operator(self) -> str:
        """Where the operator that holds the lease can be scraped; empty: nobody says."""
        try:
            lease = await self._parts.cluster.get(
                "Lease", self._parts.settings.namespace, labels.LEASE
            )
        except NotFound:
            return ""
        return lease.metadata.annotations.get(labels.SCRAPE, "")

    async def _facts(self, job: Resource) -> Facts:
        uid = job.metadata.uid
        history = await self._histories.of(uid)
        held = await self._held.of(uid)
        return Facts(
            job=job,
            tally=await self._tallies.of(job),
            usages=tuple(held),
            account=cost.account(held, history.spent, prices=cost.prices_of(job.spec)),
        )


def _is_shown(job: Resource, now: float) -> bool:
    if not state_of(job).terminal:
        return True
    times = [str(c.get("lastTransitionTime") or "") for c in conditions(job)]
    ended = max((unix_time(time) for time in times if time), default=0.0)
    return now - ended < SHOWN_SECONDS
