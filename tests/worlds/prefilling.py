"""Decode actors and the prefill service, each with a torch engine of its own, in one process."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from ebbtide import logs, paths, streams
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.data.chunks import chunk_path, encode_rows
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Transfer
from ebbtide.runtime import Process
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.hot import FakeHot
from ebbtide.testing.tiny_models import publish_tiny
from ebbtide.transfer.shm import ShmTransfer
from ebbtide.wire import (
    Assign,
    Finished,
    KvKey,
    LoadPolicy,
    Ok,
    PolicyRef,
    PrefillBeat,
    PromptRef,
    PromptRow,
    Ref,
    Rollout,
    decode,
    digest,
    encode,
    pack_ints,
)
from services.decode.app import shell as decoding
from services.decode.settings import DecodeSettings
from services.prefill.app import shell as prefilling
from services.prefill.core.desk import Limits as DeskLimits
from services.prefill.settings import PrefillSettings
from tests.worlds.decoding import Job

UID, PROMPT, SIBLINGS, ACTORS = "job-1", 256, 8, ("a0", "a1")
LIMITS = Limits(slots=4, width=280, prefill_chunk=64, prefix_rows=3, reference=True)


class Stand:
    """Stores and broker in memory, a tiny model on the disk; processes come and go."""

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.bus = FakeBus(clock=self.clock)
        self.blobs = open_blobs(folder.as_uri())
        self.job = Job(uid=UID, bus=self.bus, blobs=self.blobs)
        self.hot = FakeHot(clock=self.clock)
        self.folder = folder
        self.policy, self.index = self._publish()
        self.layout = ""

    def _publish(self) -> tuple[PolicyRef, Ref]:
        path = f"{paths.policy(UID, 1, 0)}{INDEX_NAME}"
        tiny = publish_tiny((self.folder / path).parent)
        data = tiny.path.read_bytes()
        return tiny.policy, Ref(path, digest(data), len(data))

    def transfer(self, pod: str) -> Transfer:
        return ShmTransfer(name=pod, epoch=1, clock=self.clock, root=self.folder / "kv")

    @asynccontextmanager
    async def actor(self, pod: str) -> AsyncIterator[None]:
        """An actor that holds the model."""
        transfer, engine = self.transfer(pod), TorchEngine(LIMITS)
        settings = DecodeSettings(
            blobs_url="memory:///", job="job", job_uid=UID, pod=pod, beat_seconds=0.05
        )
        world = decoding.World(
            settings=settings,
            slots=LIMITS.slots,
            blobs=self.blobs,
            bus=self.bus,
            hot=self.hot,
            engine=engine,
            clock=self.clock,
            transfer=transfer,
        )
        async with running(lambda process: decoding.Shell(world=world, process=process)):
            await self.job.beat(pod)
            await self.job.command(pod, LoadPolicy(self.job.fence, self.policy, self.index))
            await self.job.beat(pod, lambda beat: beat.policy == self.policy)
            self.layout = engine.caps.kv_layout
            yield
        await engine.close()
        await transfer.close()

    @asynccontextmanager
    async def service(self) -> AsyncIterator[None]:
        """The prefill service; it holds the model."""
        transfer, engine = self.transfer("p0"), TorchEngine(LIMITS)
        settings = PrefillSettings(
            blobs_url="memory:///", job="job", job_uid=UID, pod="p0", beat_seconds=0.05
        )
        world = prefilling.World(
            settings=settings,
            limits=DeskLimits(),
            blobs=self.blobs,
            bus=self.bus,
            engine=engine,
            transfer=transfer,
            clock=self.clock,
        )
        async with running(lambda process: prefilling.Shell(world=world, process=process)):
            await self.beat()
            command = encode(LoadPolicy(self.job.fence, self.policy, self.index))
            reply = await self.bus.request(streams.prefill(UID, "p0"), command, 5.0)
            assert isinstance(decode(reply, Ok), Ok)
            await self.beat(state="serving")
            yield
        await engine.close()
        await transfer.close()

    async def beat(self, **wanted: object) -> PrefillBeat:
        """The service's first heartbeat from now on that shows what is `wanted`."""
        async with self.bus.beats(streams.beat(UID, "prefill", "p0")) as beats:
            async for data in beats:
                beat = decode(data, PrefillBeat)
                if all(getattr(beat, name) == value for name, value in wanted.items()):
                    return beat
        raise AssertionError("beats have no end")

    async def assign(self, seq: int, *, kv: bool) -> Assign:
        """A sibling of the one long prompt; with `kv` it is to be asked for."""
        row = PromptRow("long", prompt(), "", b"{}", "t", "s")
        chunk = await self.blobs.put(chunk_path("long", 0), encode_rows([row]))
        key = KvKey(self.policy.digest, "", PROMPT - 1, self.layout)
        return msgspec.structs.replace(
            await self.job.assign(seq, self.policy, n=16),
            prompt_id="long",
            prompt_ref=PromptRef(chunk, 0),
            kv=key if kv else None,
        )

    async def siblings(self, *, kv: bool, first: int = 0) -> dict[int, Rollout]:
        """All of them decoded, half on each actor; by number, from 0."""
        for seq in range(SIBLINGS):
            assign = await self.assign(seq, kv=kv)
            again = msgspec.structs.replace(
                assign, dispatch=msgspec.structs.replace(assign.dispatch, seq=first + seq)
            )
            await self.job.submit(ACTORS[seq % 2], again)
        found = await self.job.facts(SIBLINGS)
        rollouts = {}
        for seq, fact in found.items():
            assert isinstance(fact, Finished), fact
            rollouts[seq - first] = decode(await self.blobs.fetch(fact.ref), Rollout)
        return rollouts


def prompt() -> bytes:
    return pack_ints([3 + i % 50 for i in range(PROMPT)])


@asynccontextmanager
async def running(make: Callable[[Process], Any]) -> AsyncIterator[None]:
    """A shell at work; it is killed at the end of the block."""
    async with asyncio.TaskGroup() as group:
        log = logs.setup("error", stream=io.StringIO())
        process = Process(group=group, registry=CollectorRegistry(), log=log)
        work = group.create_task(make(process).run())
        yield
        work.cancel()
        process.stop_background()


def drawn(rollouts: dict[int, Rollout]) -> list[tuple[bytes, bytes]]:
    return [(rollouts[n].tokens, rollouts[n].logprobs) for n in range(SIBLINGS)]
