from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from ebbtide import logs, streams
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.errors import Temporary
from ebbtide.parts import place
from ebbtide.ports import FactMessage
from ebbtide.runtime import Process
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.hot import FakeHot
from ebbtide.wire import Fact, Finished, PlannerBeat, Ref, decode, encode
from services.decode.app.shell import Shell, World
from services.decode.settings import DecodeSettings
from tests.worlds.decoding import Job

UID = "job-1"


class Blobs(FakeBlobs):
    """Fails while `away`; counts what is read."""

    away = False
    read = 0

    async def get(self, path: str) -> bytes:
        await asyncio.sleep(0.01)
        self.read += 1
        self._check(path)
        return await super().get(path)

    async def put(self, path: str, data: bytes) -> Ref:
        await asyncio.sleep(0.01)
        self._check(path)
        return await super().put(path, data)

    async def put_all(self, path: str, parts: Sequence[bytes]) -> list[Ref]:
        await asyncio.sleep(0.01)
        self._check(path)
        return await super().put_all(path, parts)

    def _check(self, path: str) -> None:
        if self.away:
            raise Temporary(f"no answer for {path}")


class Bus(FakeBus):
    """Sees that a finished sample's blob is there before it is told; counts what is told."""

    def __init__(self, *, clock: VirtualClock, blobs: FakeBlobs) -> None:
        super().__init__(clock=clock)
        self.told = 0
        self._blobs = blobs

    async def publish_facts(self, facts: Sequence[FactMessage]) -> None:
        for message in facts:
            fact: Fact = decode(message.data, Fact)  # type: ignore[arg-type]
            assert not isinstance(fact, Finished) or place(fact.ref.path)[0] in self._blobs.objects
        self.told += len(facts)
        await super().publish_facts(facts)


class Running:
    """One actor at work."""

    def __init__(self, process: Process, work: asyncio.Future[None]) -> None:
        self.process, self.work = process, work

    def value(self, name: str, **labels: str) -> float | None:
        """Of a metric."""
        return self.process.registry.get_sample_value(f"ebbtide_decode_{name}", labels)


class Stand:
    """A broker, stores, a planner's part, and actors as a test wants them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.blobs = Blobs(folder=folder)
        self.bus = Bus(clock=self.clock, blobs=self.blobs)
        self.hot = FakeHot(clock=self.clock)
        self.said = io.StringIO()
        self.job = Job(uid=UID, bus=self.bus, blobs=self.blobs)

    @asynccontextmanager
    async def actor(self, pod: str = "a0", *, orphan: float = 600.0) -> AsyncIterator[Running]:
        """An actor; dies at the end of the block if it has not left."""
        async with asyncio.TaskGroup() as group:
            log = logs.setup("info", stream=self.said)
            process = Process(group=group, registry=CollectorRegistry(), log=log)
            shell = Shell(world=self.world(pod, orphan), process=process)
            work = asyncio.ensure_future(shell.run())
            await asyncio.sleep(0.1)
            try:
                yield Running(process, work)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                process.stop_background()

    def world(self, pod: str, orphan: float) -> World:
        settings = DecodeSettings(
            blobs_url="memory:///",
            job="job",
            job_uid=UID,
            pod=pod,
            orphan_seconds=orphan,
            audit_path=str(self.folder / f"{pod}.log"),
        )
        params = Emulated(slots=4, width=4096, tpot=0.1, tpot_per_row=0.0)
        engine = EmulatedEngine(params, clock=self.clock)
        return World(
            settings=settings,
            slots=4,
            blobs=self.blobs,
            bus=self.bus,
            hot=self.hot,
            engine=engine,
            clock=self.clock,
        )

    def audit(self, pod: str = "a0") -> list[str]:
        path = self.folder / f"{pod}.log"
        return path.read_text().splitlines() if path.exists() else []

    async def planner_lives(self) -> None:
        """Beat once a second, for ever."""
        while True:
            await self.bus.beat(streams.planner(UID), encode(PlannerBeat(self.job.fence)))
            await asyncio.sleep(1.0)


Scenario = Callable[[Stand], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    """Run a scenario in virtual time, for an hour of it at most."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            async with asyncio.timeout(3600.0):
                await scenario(Stand(tmp_path))

        run_virtual(whole())

    return run
