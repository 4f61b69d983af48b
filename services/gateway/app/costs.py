"""GET /v1/jobs/{name}/cost: held time and money, of all or of some steps, in groups."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from ebbtide.api import CostReport
from ebbtide.errors import NotFound
from services.gateway.app.documents import add, answers
from services.gateway.app.held import HeldTime
from services.gateway.app.histories import Histories
from services.gateway.app.parts import JobName, Parts
from services.gateway.app.tallies import Tallies
from services.gateway.core import cost, windows

Key = Literal["role", "actor", "pool", "capacity", "cause"]
First = Annotated[
    int | None, Query(alias="firstStep", ge=0, le=2**31, description="Only from this step on.")
]
Last = Annotated[
    int | None, Query(alias="lastStep", ge=0, le=2**31, description="Only up to this step.")
]
Time = Annotated[
    float | None, Query(ge=0, le=1e12, description="Unix seconds; widened to whole steps.")
]


class CostRoutes:
    """Handlers; all of them only read."""

    def __init__(
        self, *, parts: Parts, histories: Histories, tallies: Tallies, held: HeldTime
    ) -> None:
        self._parts, self._histories, self._tallies = parts, histories, tallies
        self._held = held

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        found = answers(200, CostReport, 400, 404, 422)
        add(router, "GET", "/v1/jobs/{name}/cost", self.get_cost, found)

    async def get_cost(
        self,
        name: JobName,
        *,
        by: Annotated[
            list[Key] | None, Query(max_length=5, description="Groups; default role and cause.")
        ] = None,
        first_step: First = None,
        last_step: Last = None,
        since: Time = None,
        until: Time = None,
    ) -> Response:
        """Held time and money by role and cause, or other groups, of all or of some steps."""
        job = await self._parts.job(name)
        asked = windows.Asked(first_step, last_step, since, until)
        tally = await self._tallies.of(job)
        chosen = windows.chosen(asked, tally.steps)
        if chosen is not None and not chosen.steps:
            raise NotFound("no committed step lies in the window", field="window")
        found = cost.account(
            await self._held.of(job.metadata.uid),
            await self._spent(job.metadata.uid, chosen),
            prices=cost.prices_of(job.spec),
            window=chosen.time if chosen else None,
        )
        report = cost.report(
            found,
            currency=str(job.spec.get("currency", "USD")),
            by=tuple(dict.fromkeys(by or ("role", "cause"))),
            gains=tally.gains(chosen.steps if chosen else None),
        )
        return JSONResponse(report | {"window": chosen.view() if chosen else None})

    async def _spent(self, uid: str, chosen: windows.Chosen | None) -> cost.Spent:
        if chosen is None:
            return (await self._histories.of(uid)).spent
        return await self._histories.spent(uid, chosen.steps)
