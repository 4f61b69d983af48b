"""The actor as a process of its own, at a real broker and a real hot store: drained and killed."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ebbtide import logs
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.nats import open_bus
from ebbtide.testing.jobs import a_spec
from ebbtide.wire import Cut, Finished, Heartbeat, JournalRef, Rollout, decode
from services.decode.settings import DecodeSettings
from tests.worlds.decoding import Job, Terminal, running

NUMBERS = itertools.count()
EMULATED = a_spec(decode={"engine": "emulated", "slots": 8, "emulation": {"tpotMs": 5.0}})


class Actors:
    """Starts actors of one job; the test plays the planner through `job`."""

    def __init__(self, servers: EmbeddedServers, folder: Path, job: Job) -> None:
        self.job = job
        self._servers, self._folder = servers, folder
        self._alive: list[Process] = []

    async def start(self, pod: str) -> Process:
        credentials = self._servers.credentials
        settings = DecodeSettings(
            nats_url=self._servers.nats_url,
            nats_user="decode",
            nats_password=credentials.nats["decode"],
            valkey_url=self._servers.valkey_url,
            valkey_password=credentials.valkey,
            blobs_url=(self._folder / "blobs").as_uri(),
            job="job",
            job_uid=self.job.uid,
            pod=pod,
            spec=json.dumps(EMULATED),
            audit_path=str(self._folder / f"{pod}.log"),
            beat_seconds=0.2,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.decode",
            env={**os.environ, **settings.environ()}, stdout=DEVNULL, stderr=PIPE,
        )  # fmt: skip
        self._alive.append(process)
        await self.job.beat(pod)
        return process

    async def end(self) -> None:
        for process in self._alive:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    def settled(self, pod: str) -> int:
        return len((self._folder / f"{pod}.log").read_text().splitlines())

    async def rollout(self, fact: Terminal) -> Rollout:
        assert isinstance(fact, Finished)
        return decode(await self.job.blobs.fetch(fact.ref), Rollout)


@pytest.fixture
async def actors(servers: EmbeddedServers, tmp_path: Path) -> AsyncIterator[Actors]:
    planner = open_bus(
        servers.nats_url,
        user="planner",
        password=servers.credentials.nats["planner"],
        manage=True,
        log=logs.setup("error", stream=io.StringIO()),
    )
    async with planner as bus, asyncio.timeout(100.0):
        blobs = open_blobs((tmp_path / "blobs").as_uri())
        actors = Actors(servers, tmp_path, Job(uid=f"decode-{next(NUMBERS)}", bus=bus, blobs=blobs))
        await actors.job.facts(0)
        yield actors
        await actors.end()


async def test_a_terminated_actor_hands_over_all_it_has_and_ends_well(actors: Actors) -> None:
    job, process = actors.job, await actors.start("a0")
    policy = await job.load("a0")
    await job.submit("a0", *[await job.assign(seq, policy, n=1000) for seq in range(12)])
    await job.beat("a0", lambda beat: running(beat).get(7, 0) > 10)
    process.terminate()
    facts = await job.facts(12)
    assert {type(fact) for fact in facts.values()} == {Cut}
    assert all(facts[seq].n_tokens > 10 for seq in range(8))  # type: ignore[union-attr]
    last = asyncio.ensure_future(job.beat("a0", _empty_handed))
    await asyncio.sleep(0.1)
    await job.settle("a0", void=tuple(facts.values()))
    assert (await last).state == "draining"
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert actors.settled("a0") == 12


async def test_a_killed_actor_leaves_a_journal_from_which_another_goes_on(actors: Actors) -> None:
    job, first = actors.job, await actors.start("a0")
    policy = await job.load("a0")
    asked = await job.assign(0, policy, n=600)
    await job.submit("a0", asked)
    beat = await job.beat("a0", lambda beat: running(beat).get(0, 0) > 50)
    first.kill()
    await first.communicate()
    await actors.start("a1")
    await job.load("a1")
    journal = JournalRef(asked.key, asked.dispatch, running(beat)[0])
    await job.submit(
        "a1",
        await job.assign(1, policy, sample=0, resume=journal, n=600),
        await job.assign(2, policy, sample=0, n=600),
    )
    facts = await job.facts(2)
    resumed, whole = [await actors.rollout(facts[seq]) for seq in (1, 2)]
    assert (resumed.tokens, resumed.logprobs) == (whole.tokens, whole.logprobs)
    assert resumed.timings.decode < whole.timings.decode


def _empty_handed(beat: Heartbeat) -> bool:
    return not beat.running and not beat.outbox
