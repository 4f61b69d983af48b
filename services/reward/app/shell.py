"""Opens the blob store and the broker, and hands them to the scorer's life."""

from __future__ import annotations

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.nats import open_bus
from ebbtide.runtime import Body, Process
from services.reward.app.station import World, live
from services.reward.settings import RewardSettings


def body(*, settings: RewardSettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        blobs = open_blobs(
            settings.blobs_url,
            cache=settings.blobs_cache,
            writable=rights.blob_writes("reward", settings.job_uid),
        )
        broker = open_bus(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password.get_secret_value(),
            name=settings.pod,
            log=process.log,
        )
        async with broker as bus:
            await live(World(settings, blobs, bus, SystemClock()), process)

    return work
