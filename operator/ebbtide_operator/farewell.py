"""Before the operator is uninstalled: no job may be left (`python -m ebbtide_operator.farewell`).

Jobs hold finalizers that only the operator takes off. With EBBTIDE_JOBS=refuse the presence of a
job is an error that says what to do; with delete all are deleted and waited for, while the
operator still runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ebbtide import logs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.clusters import open_objects
from ebbtide.errors import DeadlineExceeded, EbbtideError, Refused
from ebbtide.exits import EXIT_OK, EXIT_REFUSED
from ebbtide.ports import Clock, Cluster, Resource
from ebbtide.settings import Settings

KIND = "RLHFJob"
_SHOWN = 5


class FarewellSettings(Settings):
    """Read from the environment."""

    cluster: str
    """Objects: path of the local SQLite file, or `kubernetes[:KUBECONFIG]`."""
    namespace: str = ""
    """The one namespace that the operator looks after; empty: all."""
    jobs: Literal["refuse", "delete"] = "refuse"
    """What to do about jobs."""
    wait_seconds: float = Field(default=600.0, gt=0)
    """Longest wait for jobs to leave."""
    poll_seconds: float = Field(default=1.0, gt=0)
    """How often it is looked whether they have."""


async def leave(cluster: Cluster, clock: Clock, settings: FarewellSettings) -> int:
    """See that no job is left; returns how many were deleted.

    Raises Refused where there are jobs that may not be deleted, DeadlineExceeded where they stay.
    """
    space = settings.namespace or None
    found, _ = await cluster.list(KIND, space)
    if found and settings.jobs == "refuse":
        raise Refused(
            f"{len(found)} jobs are left ({_named(found)}): delete them while the operator runs,"
            " or set uninstall.jobs=delete",
            field="uninstall.jobs",
        )
    for job in found:
        await cluster.delete(KIND, job.metadata.namespace, job.metadata.name, job.metadata.uid)
    until = clock.now() + settings.wait_seconds
    while (await cluster.list(KIND, space))[0]:
        if clock.now() > until:
            raise DeadlineExceeded(
                f"jobs stay after {settings.wait_seconds} s: does an operator run?"
            )
        await clock.sleep(settings.poll_seconds)
    return len(found)


def _named(found: Sequence[Resource]) -> str:
    names = [one.metadata.name for one in found[:_SHOWN]]
    return ", ".join(names) + (", ..." if len(found) > _SHOWN else "")


async def _run(settings: FarewellSettings) -> int:
    clock = SystemClock()
    async with open_objects(settings.cluster, clock=clock, manager="ebbtide-uninstall") as cluster:
        return await leave(cluster, clock, settings)


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="uninstall")
    try:
        gone = asyncio.run(_run(FarewellSettings.load(os.environ)))
    except EbbtideError as error:
        log.error("cannot uninstall", why=str(error))  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    log.info("no job is left", deleted=gone)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
