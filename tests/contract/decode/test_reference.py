"""Reference mode through the whole actor: where a sample is decoded leaves no trace in it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import torch
from prometheus_client import CollectorRegistry

from ebbtide import logs, paths
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.errors import NotFound
from ebbtide.ports import Transfer
from ebbtide.runtime import Process
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.hot import FakeHot
from ebbtide.testing.tiny_models import publish_tiny
from ebbtide.transfer.nixl import installed
from ebbtide.transfer.ways import Way, open_transfer
from ebbtide.wire import (
    Assign,
    Cut,
    CutSamples,
    Finished,
    JournalRef,
    LoadPolicy,
    PolicyRef,
    Ref,
    Rollout,
    Span,
    decode,
    digest,
)
from services.decode.app.shell import Shell, World
from services.decode.settings import DecodeSettings
from tests.worlds.decoding import Job, Terminal

UID, TOKENS = "job-1", 120
LIMITS = Limits(slots=4, width=256, prefill_chunk=16, prefix_rows=3, reference=True, flush_tokens=3)


def quiet() -> logs.Log:
    return logs.setup("error", stream=io.StringIO())


class Bench:
    """Two actors' surroundings: stores and broker in memory, a tiny model on the disk."""

    def __init__(self, folder: Path, way: Way = "shm") -> None:
        self.clock = SystemClock()
        self.bus = FakeBus(clock=self.clock)
        self.hot = FakeHot(clock=self.clock)
        self.blobs = open_blobs(folder.as_uri())
        self.job = Job(uid=UID, bus=self.bus, blobs=self.blobs)
        self.worlds: dict[str, World] = {}
        self._folder, self._way = folder, way

    def _transfer(self, pod: str) -> Transfer:
        folder = str(self._folder / "kv")
        made, way = open_transfer(
            self._way, name=pod, clock=self.clock, folder=folder, host="127.0.0.1", log=quiet()
        )
        assert way == self._way
        return made

    def publish(self) -> tuple[PolicyRef, Ref]:
        path = f"{paths.policy(UID, 1, 0)}{INDEX_NAME}"
        tiny = publish_tiny((self._folder / path).parent)
        data = tiny.path.read_bytes()
        return tiny.policy, Ref(path, digest(data), len(data))

    @asynccontextmanager
    async def actor(self, pod: str) -> AsyncIterator[None]:
        """An actor with an engine of its own that holds the model."""
        engine = TorchEngine(LIMITS)
        settings = DecodeSettings(
            blobs_url="memory:///", job="job", job_uid=UID, pod=pod, beat_seconds=0.05
        )
        world = World(
            settings=settings,
            slots=LIMITS.slots,
            blobs=self.blobs,
            bus=self.bus,
            hot=self.hot,
            engine=engine,
            clock=self.clock,
            transfer=self._transfer(pod),
        )
        self.worlds[pod] = world
        async with asyncio.TaskGroup() as group:
            process = Process(group=group, registry=CollectorRegistry(), log=quiet())
            work = group.create_task(Shell(world=world, process=process).run())
            await self.job.beat(pod)
            yield
            work.cancel()
            process.stop_background()
        await engine.close()
        assert world.transfer is not None
        await world.transfer.close()

    async def cut_after(self, pod: str, assign: Assign, tokens: int, reader: str = "") -> Cut:
        """Cut it as soon as so many tokens are journalled."""
        await self.job.submit(pod, assign)
        reached = JournalRef(assign.key, assign.dispatch, tokens)
        while True:
            with suppress(NotFound):
                await self.hot.journal(reached)
                break
            await asyncio.sleep(0.001)
        await self.job.command(pod, CutSamples(self.job.fence, (assign.dispatch,), reader))
        fact = await self.job.fact()
        assert isinstance(fact, Cut)
        return fact

    def transfer(self, pod: str) -> Transfer:
        found = self.worlds[pod].transfer
        assert found is not None
        return found

    async def rollout(self, fact: Terminal) -> Rollout:
        assert isinstance(fact, Finished)
        return decode(await self.blobs.fetch(fact.ref), Rollout)


async def test_a_cut_sample_has_equal_bits_wherever_it_goes_on(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    bench = Bench(tmp_path)
    job, (policy, index) = bench.job, bench.publish()
    async with asyncio.timeout(60.0), bench.actor("a0"), bench.actor("a1"):
        for pod in ("a0", "a1"):
            await job.command(pod, LoadPolicy(job.fence, policy, index))
            await job.beat(pod, lambda beat: beat.policy == policy)
        cut = await bench.cut_after("a0", await job.assign(0, policy, n=TOKENS), 7)
        resumed = await job.assign(1, policy, sample=0, resume=cut.journal, n=TOKENS)
        neighbour = await job.assign(2, policy, sample=1, n=TOKENS)
        await job.submit("a1", neighbour, resumed)
        await job.submit("a0", await job.assign(3, policy, sample=0, n=TOKENS))
        facts = await job.facts(3)
        moved, whole = [await bench.rollout(facts[seq]) for seq in (1, 3)]
        assert 7 <= cut.n_tokens < TOKENS
        assert (moved.tokens, moved.logprobs) == (whole.tokens, whole.logprobs)
        assert moved.spans == whole.spans == (Span(0, TOKENS, policy),)


NIXL = pytest.param("pulled", "nixl", marks=pytest.mark.skipif(not installed(), reason="no NIXL"))


@pytest.mark.parametrize(
    ("kv", "way"), [("pulled", "shm"), ("expired", "shm"), ("of another reader", "shm"), NIXL]
)
async def test_a_sample_that_moves_with_its_kv_has_equal_bits(
    tmp_path: Path, kv: str, way: Way
) -> None:
    torch.set_num_threads(1)
    bench = Bench(tmp_path, way)
    job, (policy, index) = bench.job, bench.publish()
    async with asyncio.timeout(60.0), bench.actor("a0"), bench.actor("a1"):
        for pod in ("a0", "a1"):
            await job.command(pod, LoadPolicy(job.fence, policy, index))
            await job.beat(pod, lambda beat: beat.policy == policy)
        reader = "a9" if kv == "of another reader" else "a1"
        cut = await bench.cut_after("a0", await job.assign(0, policy, n=TOKENS), 7, reader)
        assert cut.ticket is not None
        assert cut.ticket.key.n_tokens == 3 + cut.n_tokens - 1
        if kv == "expired":
            bench.transfer("a0").release(cut.ticket)
        resumed = await job.assign(1, policy, sample=0, resume=cut.journal, n=TOKENS)
        await job.submit("a1", msgspec.structs.replace(resumed, ticket=cut.ticket))
        await job.submit("a0", await job.assign(3, policy, sample=0, n=TOKENS))
        facts = await job.facts(2)
        moved, whole = [await bench.rollout(facts[seq]) for seq in (1, 3)]
        assert (moved.tokens, moved.logprobs) == (whole.tokens, whole.logprobs)
        beat = await job.beat("a1")
        assert beat.stats.prefill_imported == (cut.ticket.key.n_tokens if kv == "pulled" else 0)
        assert beat.stats.prefill_tokens == (0 if kv == "pulled" else 2)
        await job.beat("a0", lambda beat: bool(beat.holding) == (kv == "of another reader"))
