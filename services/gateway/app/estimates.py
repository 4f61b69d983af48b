"""What a job would take and cost, from its model's files and from jobs like it that ran here."""

from __future__ import annotations

import asyncio
from typing import Any

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.estimate import Alike, ModelShape, estimate, same_work
from ebbtide.shapes import read_shape
from ebbtide.spec import RLHFJob
from ebbtide.spec.check import dump
from services.gateway.app.parts import KIND, Parts
from services.gateway.app.tallies import Tallies

_LOOKED_AT = 8
"""Jobs alike, newest first, until one has a step."""


class Estimates:
    """Estimates for dry runs."""

    def __init__(self, *, parts: Parts, tallies: Tallies) -> None:
        self._parts, self._tallies = parts, tallies

    async def of(self, job: RLHFJob) -> dict[str, Any]:
        """The estimate (ebbtide.api.Estimate)."""
        seen = self._parts.settings.check_paths
        shape = await asyncio.to_thread(_shape, job) if seen else None
        return estimate(job.spec, shape, await self._alike(job))

    async def _alike(self, job: RLHFJob) -> list[Alike]:
        wanted = dump(job)["spec"]
        jobs, _ = await self._parts.cluster.list(KIND, self._parts.settings.namespace)
        newest = sorted(jobs, key=lambda one: one.metadata.creation_timestamp, reverse=True)
        for one in [j for j in newest if same_work(wanted, j.spec)][:_LOOKED_AT]:
            marks = list((await self._tallies.of(one)).steps.values())
            if marks:
                mean = sum(mark.end - mark.start for mark in marks) / len(marks)
                return [Alike(one.metadata.name, len(marks), mean)]
        return []


def _shape(job: RLHFJob) -> ModelShape | None:
    try:
        return read_shape(local_path(job.spec.model.uri))
    except Refused:
        return None
