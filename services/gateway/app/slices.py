"""GET /v1/jobs/{name}/slices: samples by task, length and versions, as fine as one asks."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from ebbtide.api import SliceList
from ebbtide.errors import NotFound, Refused
from ebbtide.spec import EvaluationSpec
from services.gateway.app.documents import add, answers
from services.gateway.app.histories import Histories
from services.gateway.app.parts import JobName, Parts
from services.gateway.core.slices import KEYS, sliced

MOST_STEPS = 200
"""In one answer: their records are read anew for each."""

Key = Literal["step", "purpose", "task", "length", "prompts", "policy", "reward", "sign", "age"]
First = Annotated[
    int | None, Query(alias="firstStep", ge=0, le=2**31, description="Default: lastStep.")
]
Last = Annotated[
    int | None, Query(alias="lastStep", ge=0, le=2**31, description="Default: the last step.")
]


class SliceRoutes:
    """Handlers; all of them only read."""

    def __init__(self, *, parts: Parts, histories: Histories) -> None:
        self._parts, self._histories = parts, histories

    def install(self, router: APIRouter) -> None:
        """Add the routes of this class."""
        found = answers(200, SliceList, 400, 404, 422)
        add(router, "GET", "/v1/jobs/{name}/slices", self.get_slices, found)

    async def get_slices(
        self,
        name: JobName,
        *,
        by: Annotated[
            list[Key] | None, Query(max_length=len(KEYS), description="Default: task.")
        ] = None,
        first_step: First = None,
        last_step: Last = None,
        purpose: Annotated[Literal["train", "eval"] | None, Query()] = None,
    ) -> Response:
        """Accepted samples in groups of those that are alike: counts, rewards, lengths."""
        job = await self._parts.job(name)
        uid = job.metadata.uid
        known = (await self._histories.of(uid)).steps
        last = max(known, default=0) if last_step is None else last_step
        first = last if first_step is None else first_step
        if last - first >= MOST_STEPS:
            raise Refused(f"at most {MOST_STEPS} steps at a time", field="firstStep")
        steps = [step for step in range(first, last + 1) if step in known]
        if not steps and (first_step is not None or last_step is not None):
            raise NotFound("no step with samples lies in the window", field="firstStep")
        views = [await self._histories.step(uid, step) for step in steps]
        keys = list(dict.fromkeys(by or ("task",)))
        wanted = EvaluationSpec.model_validate(job.spec.get("evaluation") or {})
        items = sliced(views, keys, purpose, threshold=wanted.pass_threshold)
        return JSONResponse({"firstStep": first, "lastStep": last, "by": keys, "items": items})
