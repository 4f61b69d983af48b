"""Runs the operator: `python -m ebbtide_operator`."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from contextlib import AsyncExitStack

import msgspec

from ebbtide import logs, rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.clusters import is_kubernetes, open_objects
from ebbtide.errors import Refused
from ebbtide.exits import EXIT_REFUSED
from ebbtide.metrics import new_registry
from ebbtide.runtime import Body, Process, run
from ebbtide_operator.controller import Controller
from ebbtide_operator.core.render import Renderer
from ebbtide_operator.core.retention import Limit, Limits
from ebbtide_operator.core.site import Site
from ebbtide_operator.lease import Lease
from ebbtide_operator.metrics import OperatorMetrics
from ebbtide_operator.settings import OperatorSettings

_HOUR, _DAY = 3600.0, 86_400.0


def body(*, settings: OperatorSettings, site: Site) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        async with AsyncExitStack() as stack:
            clock = SystemClock()
            cluster = await stack.enter_async_context(
                open_objects(
                    settings.cluster,
                    clock=clock,
                    manager="ebbtide-operator",
                    render=Renderer(site.kubernetes) if site.kubernetes else None,
                )
            )
            lease = Lease(
                cluster=cluster,
                clock=clock,
                holder=f"{settings.pod}-{uuid.uuid4().hex[:8]}",
                seconds=settings.lease_seconds,
                namespace=settings.lease_namespace,
                scrape=f"{settings.health_host}:{settings.health_port}",
            )
            controller = Controller(
                cluster=cluster,
                blobs=open_blobs(settings.blobs_url, writable=rights.blob_writes("operator", "")),
                clock=clock,
                lease=lease,
                site=site,
                namespace=settings.namespace or None,
                metrics=OperatorMetrics(process.registry, since=clock.wall()),
                log=process.log,
                limits=_limits(settings),
                spans=process.spans,
            )
            await _serve(process, lease, controller, settings.retention_seconds)

    return work


def _limits(settings: OperatorSettings) -> Limits:
    return Limits(
        logs=Limit(settings.log_days * _DAY, settings.log_job_mib << 20),
        samples=Limit(settings.sample_days * _DAY, settings.sample_job_mib << 20),
        grace=settings.retention_grace_hours * _HOUR,
    )


async def _serve(
    process: Process, lease: Lease, controller: Controller, sweep_seconds: float
) -> None:
    cache = controller.cache
    process.health.require_ready("list", lambda: cache.trouble if cache.heard else "listing")
    process.health.require_alive("passes", controller.stuck)
    watch = process.spawn(controller.cache.follow(), name="cache")
    process.health.ready = True
    drained = asyncio.create_task(process.drain.wait(), name="drain")
    waiting = asyncio.create_task(lease.acquire(), name="lease")
    await asyncio.wait({drained, waiting}, return_when=asyncio.FIRST_COMPLETED)
    tasks = [watch]
    if waiting.done():
        waiting.result()
        process.log.info("the lease is held")
        tasks += [
            process.spawn(lease.keep(), name="renewal"),
            process.spawn(controller.work(), name="jobs"),
            process.spawn(controller.resync(), name="resync"),
            process.spawn(controller.show(), name="metrics"),
            process.spawn(controller.retention.run(sweep_seconds), name="retention"),
        ]
        await drained
    waiting.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await lease.release()


def _check(settings: OperatorSettings, site: Site) -> None:
    if is_kubernetes(settings.cluster) and site.kubernetes is None:
        detail = "pods need an image: give EBBTIDE_SITE its part kubernetes"
        raise Refused(detail, field="EBBTIDE_SITE")


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="operator")
    try:
        settings = OperatorSettings.load(os.environ)
        site = msgspec.json.decode(settings.site, type=Site)
        _check(settings, site)
    except (Refused, msgspec.DecodeError) as error:
        log.error("settings refused", why=str(error))  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    log = logs.setup(settings.log_level, role="operator", pod=settings.pod)
    work = body(settings=settings, site=site)
    return run(work, settings=settings, registry=new_registry(counts=settings.metrics), log=log)


if __name__ == "__main__":
    sys.exit(main())
