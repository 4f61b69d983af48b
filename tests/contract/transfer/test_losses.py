"""Processes that die around a hand-over: the job goes on, with the right tokens, and counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch

from ebbtide.errors import Temporary
from ebbtide.ports import Expired, Imported, KvData, Miss, Transfer
from ebbtide.transfer.nixl import installed, over_nixl
from ebbtide.transfer.shm import ShmTransfer
from ebbtide.wire import (
    Assign,
    Cut,
    CutSamples,
    Finished,
    Heartbeat,
    KvKey,
    KvTicket,
    Rollout,
    decode,
)
from tests.worlds.prefilling import ACTORS, PROMPT, SIBLINGS, Stand, drawn

WAYS = [
    "shm",
    pytest.param("nixl", marks=pytest.mark.skipif(not installed(), reason="ebbtide[nixl]")),
]
LONG = 240


class Mortal:
    """A process's transfer: `fate` is met between a hand-over and its read; `die` ends it early."""

    def __init__(self, real: Transfer, fate: Callable[[], Awaitable[None]]) -> None:
        self._real, self._fate = real, fate
        self._dead = False

    async def export(self, kv: KvData, *, reader: str, seconds: float) -> KvTicket:
        if self._dead:
            raise Temporary("this process is dead")
        return await self._real.export(kv, reader=reader, seconds=seconds)

    async def pull(
        self, ticket: KvTicket, *, wanted: KvKey, seconds: float
    ) -> Imported | Miss | Expired:
        await self._fate()
        return await self._real.pull(ticket, wanted=wanted, seconds=seconds)

    def release(self, ticket: KvTicket) -> None:
        if not self._dead:
            self._real.release(ticket)

    def held(self) -> Sequence[KvTicket]:
        return () if self._dead else self._real.held()

    async def close(self) -> None:
        if not self._dead:
            self._dead = True
            await self._real.close()


class Doom(Stand):
    """`source`: the pod that dies before anybody has read what it holds."""

    def __init__(self, folder: Path, way: str, *, source: str) -> None:
        super().__init__(folder)
        self._way, self._source = way, source
        self._ends: dict[str, Mortal] = {}
        self._dying = asyncio.Lock()

    def transfer(self, pod: str) -> Transfer:
        self._ends[pod] = Mortal(self._open(pod), self._die)
        return self._ends[pod]

    def _open(self, pod: str) -> Transfer:
        if self._way == "nixl":
            return over_nixl(name=pod, clock=self.clock, host="127.0.0.1")
        return ShmTransfer(name=pod, epoch=1, clock=self.clock, root=self.folder / "kv")

    async def _die(self) -> None:
        async with self._dying:  # a second reader comes when it is quite dead, too
            await self._ends[self._source].close()

    async def cut(self) -> tuple[int, Cut]:
        """A sample cut on a0 for a1, and its number; the first that is not finished before."""
        for sample in range(10):
            assign = await self.job.assign(sample, self.policy, n=LONG)
            await self.job.submit("a0", assign)
            await self.job.beat("a0", lambda beat: beat.stats.decode_tokens > 0)
            command = CutSamples(self.job.fence, (assign.dispatch,), reader="a1")
            await self.job.command("a0", command)
            fact = await self.job.fact()
            if isinstance(fact, Cut) and fact.ticket is not None and fact.journal is not None:
                return sample, fact
        raise AssertionError("always finished before it could be cut")

    async def answer(self, assign: Assign) -> tuple[bytes, bytes]:
        """Tokens and log-probabilities, from a1."""
        await self.job.submit("a1", assign)
        fact = await self.job.fact()
        assert isinstance(fact, Finished), fact
        rollout = decode(await self.blobs.fetch(fact.ref), Rollout)
        return rollout.tokens, rollout.logprobs


def told(beat: Heartbeat, name: str) -> dict[str, float]:
    return {one.label: one.value for one in beat.counted if one.name == name and one.value}


@pytest.mark.parametrize("way", WAYS)
async def test_a_prefill_that_dies_before_the_read_costs_each_actor_a_computation(
    tmp_path: Path, way: str
) -> None:
    torch.set_num_threads(1)
    stand = Doom(tmp_path, way, source="p0")
    async with asyncio.timeout(100.0), stand.actor("a0"), stand.actor("a1"), stand.service():
        found = drawn(await stand.siblings(kv=True))
        beats = [await stand.job.beat(pod) for pod in ACTORS]
        asked = [told(beat, "prompt_requests") for beat in beats]
        assert {"miss": 1} in asked
        # Who asks while it dies hears something else, or nothing.
        assert all(one and "imported" not in one for one in asked), asked
        assert [beat.stats.prefill_tokens for beat in beats] == [PROMPT - 1] * 2
        assert [beat.stats.prefill_imported for beat in beats] == [0, 0]
        assert found == drawn(await stand.siblings(kv=False, first=SIBLINGS))


@pytest.mark.parametrize("way", WAYS)
async def test_a_source_that_dies_during_a_move_costs_the_target_a_computation(
    tmp_path: Path, way: str
) -> None:
    torch.set_num_threads(1)
    stand = Doom(tmp_path, way, source="a0")
    async with asyncio.timeout(100.0), stand.actor("a0"), stand.actor("a1"):
        n, cut = await stand.cut()
        make = partial(stand.job.assign, policy=stand.policy, sample=n, n=LONG)
        moved = await make(100, resume=cut.journal)
        found = await stand.answer(msgspec.structs.replace(moved, ticket=cut.ticket))
        beat = await stand.job.beat("a1")
        assert (told(beat, "kv_pulls"), beat.stats.prefill_imported) == ({"miss": 1}, 0)
        assert found == await stand.answer(await make(101))
