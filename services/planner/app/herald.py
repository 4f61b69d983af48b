"""Writes the planner's fields of the job's status, at most once a second."""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.errors import Conflict, NotFound, Temporary
from ebbtide.objects import rfc3339
from services.planner.app.world import World
from services.planner.core.planner import Planner

_FINAL_TRIES = 20


class Herald:
    """Reads the core, never the other way round."""

    def __init__(self, *, world: World, planner: Planner) -> None:
        self._world, self._planner = world, planner
        self._last: dict[str, Any] = {}

    async def run(self) -> None:
        """Tell what changed, for ever."""
        while True:
            await self.tell()
            await self._world.clock.sleep(self._world.settings.status_seconds)

    async def tell_outcome(self) -> None:
        """The last word must arrive: the operator ends the job by it."""
        for _ in range(_FINAL_TRIES):
            if await self.tell():
                return
            await self._world.clock.sleep(self._world.settings.status_seconds)
        raise Temporary("the job's outcome could not be written to its status")

    async def tell(self) -> bool:
        """Write what is new; whether the status now says what the core says."""
        status = self._status()
        if status == self._last:
            return True
        if not await write_status(self._world, status):
            return False
        self._last = status
        return True

    def _status(self) -> dict[str, Any]:
        planner, clock = self._planner, self._world.clock
        progress = msgspec.to_builtins(planner.standing())
        if planner.progress_at is not None:
            when = clock.wall() - (clock.now() - planner.progress_at)
            progress["lastProgressTime"] = rfc3339(round(when, 1))
        policy = planner.policy_status()
        status = {"progress": progress, "cost": msgspec.to_builtins(planner.cost_status())}
        return status | ({"policy": msgspec.to_builtins(policy)} if policy else {})


async def write_status(world: World, status: dict[str, Any]) -> bool:
    """Merge `status` into the job's; whether it was written."""
    if world.cluster is None:
        return True
    settings = world.settings
    try:
        await world.cluster.patch_status("RLHFJob", settings.namespace, settings.job, status)
    except (Conflict, Temporary) as error:
        world.log.warning("status not written", why=str(error))
        return False
    except NotFound:
        world.log.warning("the job object is gone")
    return True
