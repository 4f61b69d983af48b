"""The lease: one operator writes, whatever clocks and servers do."""

import asyncio

import pytest

from ebbtide.errors import Temporary
from ebbtide.ports import Clock, Resource
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.cluster import FakeCluster
from ebbtide_operator.lease import Lease, Lost


class SkewedClock:
    """Another machine's clock, whose wall shows a time `ahead` seconds ahead."""

    def __init__(self, clock: Clock, ahead: float) -> None:
        self.now, self.sleep = clock.now, clock.sleep
        self._clock, self._ahead = clock, ahead

    def wall(self) -> float:
        return self._clock.wall() + self._ahead


class Moody(FakeCluster):
    """Does not answer while it is `silent`."""

    silent = False

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        if self.silent:
            raise Temporary("no answer")
        return await super().get(kind, namespace, name)


def a_lease(cluster: FakeCluster, holder: str = "a", ahead: float = 0.0) -> Lease:
    clock = SkewedClock(VirtualClock(), ahead)
    return Lease(cluster=cluster, clock=clock, holder=holder, seconds=6.0, namespace="default")


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_another_machines_clock_takes_no_lease_away(ahead: float) -> None:
    async def scene() -> None:
        cluster = FakeCluster()
        first, second = a_lease(cluster), a_lease(cluster, "b", ahead)
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60.0):
                await second.acquire()
        first.check()
        keeping.cancel()
        async with asyncio.timeout(8.0):
            await second.acquire()
        second.check()

    run_virtual(scene())


def test_a_lease_outlives_a_short_silence_and_no_longer_one() -> None:
    async def scene() -> None:
        cluster = Moody()
        lease = a_lease(cluster)
        await lease.acquire()
        keeping = asyncio.create_task(lease.keep())
        cluster.silent = True
        await asyncio.sleep(3.0)
        cluster.silent = False
        await asyncio.sleep(3.0)
        lease.check()
        cluster.silent = True
        with pytest.raises(Lost):
            await keeping

    run_virtual(scene())


def test_a_lease_is_waited_for_while_nobody_answers() -> None:
    async def scene() -> None:
        cluster = Moody()
        cluster.silent = True
        waiting = asyncio.create_task(a_lease(cluster).acquire())
        await asyncio.sleep(30.0)
        assert not waiting.done()
        cluster.silent = False
        async with asyncio.timeout(5.0):
            await waiting

    run_virtual(scene())
