"""GET /v1/costs: all jobs by tenant, label or state; /v1/costs/opencost: beside OpenCost's bill."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from ebbtide import labels
from ebbtide.adapters.opencost import OpenCost
from ebbtide.api import CostGroupList, Reconciliation
from ebbtide.errors import NotFound, Refused, Temporary
from ebbtide.ports import Resource
from services.gateway.app.documents import add, answers
from services.gateway.app.held import HeldTime
from services.gateway.app.histories import Histories
from services.gateway.app.parts import KIND, Parts
from services.gateway.core import cost, listing, spending
from services.gateway.core.problems import Problem
from services.gateway.core.spending import Spending

_AT_ONCE = 8
Moment = Annotated[float, Query(ge=0, le=1e11, description="Unix seconds.")]


class SpendingRoutes:
    """Handlers; all of them only read."""

    def __init__(self, *, parts: Parts, histories: Histories, held: HeldTime) -> None:
        self._parts, self._histories, self._held = parts, histories, held

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        add(router, "GET", "/v1/costs", self.get_costs, answers(200, CostGroupList, 400, 422))
        compared = answers(200, Reconciliation, 404, 422)
        add(router, "GET", "/v1/costs/opencost", self.get_reconciliation, compared)

    async def get_costs(
        self,
        by: Annotated[
            list[str] | None,
            Query(max_length=4, description="tenant, job, state, label:NAME; default: tenant."),
        ] = None,
        label: Annotated[
            list[str] | None, Query(max_length=8, description="key=value that jobs must have.")
        ] = None,
    ) -> Response:
        """Held time and money of all jobs that are still stored, added up in groups."""
        keys = list(dict.fromkeys(by or ("tenant",)))
        spending.check_keys(keys)
        wanted = dict(listing.parse_labels(label or ()))
        found = await self._all(wanted, cost.Window(), caused=True)
        return JSONResponse({"by": keys, "items": spending.added_up(found, keys)})

    async def get_reconciliation(self, since: Moment, until: Moment) -> Response:
        """Each job's held time at full price beside what OpenCost says of its pods."""
        if until <= since:
            raise Refused("until must be after since", field="until")
        address = self._parts.settings.opencost_url
        if not address:
            raise NotFound("no OpenCost is known here: set EBBTIDE_OPENCOST_URL", field="opencost")
        try:
            theirs = await OpenCost(address).by_label(labels.JOB_UID, since, until)
        except Temporary as error:
            raise Problem("unavailable", str(error)) from error
        window = cost.Window(since, until)
        ours = [one for one in await self._all({}, window, caused=False) if one.account.held]
        return JSONResponse(spending.compared(ours, theirs) | {"since": since, "until": until})

    async def _all(
        self, wanted: dict[str, str], window: cost.Window, *, caused: bool
    ) -> list[Spending]:
        """`caused`: with causes, so that sleeping actors cost what they cost asleep."""
        namespace = self._parts.settings.namespace
        jobs, _ = await self._parts.cluster.list(KIND, namespace, wanted)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(job: Resource) -> Spending:
            async with gate:
                uid = job.metadata.uid
                spent: cost.Spent = (await self._histories.of(uid)).spent if caused else {}
                held = await self._held.of(uid)
            prices = cost.prices_of(job.spec)
            return Spending(job, cost.account(held, spent, prices=prices, window=window))

        return list(await asyncio.gather(*map(one, jobs)))
