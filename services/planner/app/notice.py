"""The planner's fields of the job's status: progress, policy, cost, prefill.

Each write is conditional on the version of the job that was looked at before it, and a job that
shows a higher (attempt, epoch), or another uid, is not written: so a planner that was replaced
while it was paused never shows old progress over new, and ends as soon as it sees that.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.errors import Conflict, EbbtideError, Fenced, NotFound, Temporary
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Cluster, Resource
from ebbtide.status import Progress, read
from ebbtide.wire import Fence
from services.planner.app.world import World
from services.planner.core.planner import Planner

_PATIENCE = 60.0
_TRIES = 5
"""The operator writes the same object: a planner that meets it looks again at once."""


class Notice:
    """Writes what has changed, at most once in `status_seconds`; an outcome until it stands.

    `fence`: the writer's. Every method raises Fenced once the job shows a newer planner.
    """

    def __init__(self, *, world: World, fence: Fence, log: Log) -> None:
        self._world, self._fence, self._log = world, fence, log
        self._written: dict[str, Any] = {}

    async def keep(self, planner: Planner) -> None:
        """Write for ever."""
        while True:
            try:
                await self._write(self._fields(planner))
            except (Temporary, Conflict, NotFound) as error:
                self._log.warning("status not written", why=str(error))
            await self._world.clock.sleep(self._world.settings.status_seconds)

    async def last(self, planner: Planner) -> None:
        """Write the outcome; raises what stood in the way for too long."""
        await self._insist(self._fields(planner))

    async def preparing(self) -> None:
        """The data are being made, which may take long."""
        fence = self._fence
        said = {"attempt": fence.attempt, "plannerEpoch": fence.planner_epoch}
        await self._write({"progress": {"phase": "preparing", **said}})

    async def refuse(self, detail: str) -> None:
        """The job's data are at fault: say so where the user looks."""
        progress = Progress(
            phase="ended",
            attempt=self._fence.attempt,
            planner_epoch=self._fence.planner_epoch,
            last_progress_time=rfc3339(self._world.clock.wall()),
            outcome="failed",
            reason="DataRefused",
            message=detail,
        )
        await self._insist({"progress": msgspec.to_builtins(progress)})

    async def _insist(self, fields: dict[str, Any]) -> None:
        until = self._world.clock.now() + _PATIENCE
        while True:
            try:
                return await self._write(fields)
            except NotFound:
                return None  # the job is gone: nobody is left to tell
            except Fenced:
                raise
            except EbbtideError as error:
                if self._world.clock.now() > until:
                    raise
                self._log.warning("status not written", why=str(error))
            await self._world.clock.sleep(self._world.settings.status_seconds)

    async def _write(self, fields: dict[str, Any]) -> None:
        changed = {name: value for name, value in fields.items() if self._known(name) != value}
        if self._world.cluster is None or not changed:
            return
        for left in reversed(range(_TRIES)):
            try:
                await self._write_over(self._world.cluster, changed)
                break
            except Conflict:
                if not left:
                    raise
        self._written |= changed

    async def _write_over(self, cluster: Cluster, changed: dict[str, Any]) -> None:
        """Write unless somebody newer has, or does meanwhile."""
        place = ("RLHFJob", self._world.settings.namespace, self._world.settings.job)
        job = await cluster.get(*place)
        self._check(job)
        await cluster.patch_status(*place, changed, job.metadata.resource_version)

    def _check(self, job: Resource) -> None:
        """Raise Fenced if the job has a newer planner, or is another one of the same name."""
        shown = read(job.status, "progress", Progress)
        newest = Fence(shown.attempt, shown.planner_epoch)
        if job.metadata.uid != self._world.settings.job_uid:
            raise Fenced(f"job {job.metadata.name} is another one by now: {job.metadata.uid}")
        if newest > self._fence:
            raise Fenced(f"the job's status is written by a newer planner: {newest}")

    def _known(self, name: str) -> Any:
        return self._written.get(name)

    def _fields(self, planner: Planner) -> dict[str, Any]:
        progress = msgspec.structs.replace(
            planner.standing(), last_progress_time=self._wall(planner.progress_at)
        )
        fields: dict[str, Any] = {"progress": msgspec.to_builtins(progress)}
        policy = planner.policy_status()
        if policy is not None:
            fields["policy"] = msgspec.to_builtins(policy)
        prefill = planner.prefill_status()
        if prefill is not None:
            fields["prefill"] = msgspec.to_builtins(prefill)
        return fields | {"cost": self._cost(planner)}

    def _cost(self, planner: Planner) -> Any:
        """The time of the last change is kept while nothing changes."""
        cost = msgspec.to_builtins(planner.cost_status())
        known = self._written.get("cost", {})
        same = known.get("accrued") == cost["accrued"] and bool(known)
        now = rfc3339(self._world.clock.wall())
        return cost | {"lastUpdatedTime": known["lastUpdatedTime"] if same else now}

    def _wall(self, moment: float | None) -> str:
        if moment is None:
            return ""
        return rfc3339(round(self._world.clock.wall() - self._world.clock.now() + moment, 3))
