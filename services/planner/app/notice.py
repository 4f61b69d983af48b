"""The planner's fields of the job's status: progress, policy, cost."""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.errors import Conflict, EbbtideError, NotFound, Temporary
from ebbtide.logs import Log
from ebbtide.objects import rfc3339
from ebbtide.ports import Cluster
from ebbtide.status import Progress
from services.planner.app.world import World
from services.planner.core.planner import Planner

_PATIENCE = 60.0


class Notice:
    """Writes what has changed, at most once in `status_seconds`; an outcome until it stands."""

    def __init__(self, *, world: World, log: Log) -> None:
        self._world, self._log = world, log
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
        attempt = self._world.settings.attempt
        await self._write({"progress": {"phase": "preparing", "attempt": attempt}})

    async def refuse(self, detail: str) -> None:
        """The job's data are at fault: say so where the user looks."""
        progress = Progress(
            phase="ended",
            attempt=self._world.settings.attempt,
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
            except EbbtideError as error:
                if self._world.clock.now() > until:
                    raise
                self._log.warning("status not written", why=str(error))
            await self._world.clock.sleep(self._world.settings.status_seconds)

    async def _write(self, fields: dict[str, Any]) -> None:
        changed = {name: value for name, value in fields.items() if self._known(name) != value}
        cluster: Cluster | None = self._world.cluster
        if cluster is None or not changed:
            return
        settings = self._world.settings
        await cluster.patch_status("RLHFJob", settings.namespace, settings.job, changed)
        self._written |= changed

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
