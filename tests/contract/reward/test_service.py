"""The scorer as a process of its own, at a real broker: killed, drained, refused."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ebbtide import logs, streams
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.nats import open_bus
from ebbtide.demo import tokenizer as demo
from ebbtide.ports import Bus, Consumer
from ebbtide.testing.rollouts import a_request, a_rollout
from ebbtide.wire import (
    Error,
    Fact,
    Invalid,
    Part,
    RewardBeat,
    ScoreReady,
    TurnReady,
    Value,
    decode,
    encode,
)
from services.reward.settings import RewardSettings

NUMBERS = itertools.count()
OBEDIENT = {"type": "function", "name": "f", "entry_point": "ebbtide.testing.rewards:obedient"}


class Job:
    """One job at the broker, seen by its planner; scorers are started by the test."""

    def __init__(self, servers: EmbeddedServers, folder: Path, bus: Bus) -> None:
        self.uid = f"reward-{next(NUMBERS)}"
        self.bus = bus
        self.blobs = open_blobs((folder / "blobs").as_uri())
        self.tokenizer = demo.build()
        self._servers, self._folder = servers, folder
        self._facts: Consumer | None = None
        demo.save(folder / "model")

    async def scorer(
        self,
        *components: Any,
        seconds: float = 60.0,
        grace: float = 25.0,
        reach: str = "",
        breaker: int = 16,
        environment: dict[str, Any] | None = None,
    ) -> Process:
        spec = {
            "model": {"uri": str(self._folder / "model")},
            "dataset": {"train": {"type": "jsonl", "uri": "rows.jsonl"}},
            "algorithm": {"type": "grpo"},
            "training": {"totalSteps": 1},
            "reward": {
                "components": components or [OBEDIENT],
                "timeoutSeconds": seconds,
                "breakerErrors": breaker,
            },
            "environment": environment,
        }
        settings = RewardSettings(
            nats_url=self._servers.nats_url,
            nats_user="reward",
            nats_password=self._servers.credentials.nats["reward"],
            blobs_url=(self._folder / "blobs").as_uri(),
            grace_seconds=grace,
            private_networks=reach,
            job="job",
            job_uid=self.uid,
            spec=json.dumps(spec),
        )
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.reward",
            env={**os.environ, **settings.environ()}, stdout=DEVNULL, stderr=PIPE,
        )  # fmt: skip

    async def ask(self, *responses: str) -> None:
        for index, response in enumerate(responses):
            rollout = a_rollout(self.tokenizer.encode(response).ids, uid=self.uid, index=index)
            request = await a_request(self.blobs, rollout)
            await self.bus.publish_fact(
                streams.scoring(self.uid), encode(request), f"{self.uid}-{index}"
            )

    async def facts(self, count: int) -> dict[int, ScoreReady | TurnReady]:
        """The first `count` facts, by sample: how an episode goes on, or its score."""
        name, found = f"facts-{self.uid}", dict[int, ScoreReady | TurnReady]()
        consumer = await self.bus.consume(streams.FACTS, name, streams.facts(self.uid))
        async with asyncio.timeout(60):
            while len(found) < count:
                for delivery in await consumer.fetch(100, 1.0):
                    fact: Any = decode(delivery.data, Fact)  # type: ignore[arg-type]
                    found[fact.key.index] = fact
        return found

    async def verdicts(self, count: int) -> dict[int, ScoreReady]:
        """The first `count` facts, by sample."""
        if self._facts is None:
            name = f"verdicts-{self.uid}"
            self._facts = await self.bus.consume(streams.FACTS, name, streams.facts(self.uid))
        found: dict[int, ScoreReady] = {}
        async with asyncio.timeout(60):
            while len(found) < count:
                for delivery in await self._facts.fetch(100, 1.0):
                    ready = decode(delivery.data, ScoreReady)
                    assert ready.key.index not in found
                    found[ready.key.index] = ready
                    await delivery.ack()
        return found

    async def beat(self, *, busy: int = 0, scored: int = 0) -> RewardBeat:
        """The first beat that tells of as much work."""
        async with self.bus.beats(streams.beats(self.uid)) as beats, asyncio.timeout(60):
            while True:
                beat = decode(await anext(beats), RewardBeat)
                if beat.busy >= busy and beat.scored >= scored:
                    return beat


async def said(process: Process) -> str:
    """All that it logged; waits for its end."""
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    return err.decode()


@pytest.fixture
async def job(servers: EmbeddedServers, tmp_path: Path) -> AsyncIterator[Job]:
    planner = open_bus(
        servers.nats_url,
        user="planner",
        password=servers.credentials.nats["planner"],
        manage=True,
        log=logs.setup("error", stream=io.StringIO()),
    )
    async with planner as bus:
        yield Job(servers, tmp_path, bus)


async def test_answers_are_scored_whoever_hangs_or_crashes_among_them(job: Job) -> None:
    process = await job.scorer(seconds=2.0)
    await job.ask("0.5", "hang", "crash", "raise", "1")
    scores = {index: ready.score for index, ready in (await job.verdicts(5)).items()}
    process.terminate()
    await said(process)
    assert process.returncode == 0
    faults = [
        score.fault if isinstance(score, Value) else "" for _, score in sorted(scores.items())
    ]
    assert faults == ["", "timeout", "crash", "", ""]
    assert [s.total for _, s in sorted(scores.items()) if isinstance(s, Value)] == [0.5, 0, 0, 1]


@pytest.fixture
def scoring_server() -> Iterator[str]:
    command = [sys.executable, "-S", "-m", "ebbtide.testing.scoring_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


async def test_workers_and_servers_judge_the_same_answer(job: Job, scoring_server: str) -> None:
    asked = {"type": "http", "name": "h", "uri": scoring_server, "weight": 10.0}
    process = await job.scorer(asked, OBEDIENT, reach="127.0.0.0/8")
    await job.ask("0.5")
    [ready] = (await job.verdicts(1)).values()
    process.terminate()
    await said(process)
    assert ready.score == Value(5.5, (Part("h", 0.5, 5.0), Part("f", 0.5, 0.5)))


async def test_a_scorer_killed_at_work_leaves_its_request_to_the_next(job: Job) -> None:
    first = await job.scorer()
    await job.ask("hang")
    await job.beat(busy=1)
    first.send_signal(signal.SIGKILL)
    await said(first)
    second = await job.scorer(seconds=0.2)
    [ready] = (await job.verdicts(1)).values()
    second.terminate()
    await said(second)
    assert ready.score == Value(0.0, (), "timeout")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_what_a_function_left_behind_dies_with_the_scorer(
    job: Job, how: signal.Signals
) -> None:
    process = await job.scorer()
    await job.ask("daemon")
    [ready] = (await job.verdicts(1)).values()
    assert isinstance(ready.score, Value)
    daemon = psutil.Process(int(ready.score.total))
    process.send_signal(how)
    await said(process)
    await asyncio.to_thread(daemon.wait, 60)


async def test_a_drained_scorer_hands_back_and_ends_well(job: Job) -> None:
    process = await job.scorer(grace=6.0)
    await job.ask("hang")
    await job.beat(busy=1)
    process.terminate()
    assert '"handed_back":1' in await said(process)
    assert process.returncode == 0


async def test_a_beat_tells_what_a_scorer_does(job: Job) -> None:
    process = await job.scorer()
    await job.ask("1")
    beat = await job.beat(scored=1)
    process.terminate()
    await said(process)
    assert (beat.instance, beat.breaker_open, len(beat.scorer_digest)) == ("local", False, 64)


async def test_a_function_that_is_not_there_ends_with_one_clear_line(job: Job) -> None:
    missing = {"type": "function", "name": "f", "entry_point": "nowhere:f"}
    process = await job.scorer(missing)
    text = await said(process)
    assert process.returncode == 2
    assert "cannot load nowhere:f: ModuleNotFoundError" in text
    assert "Traceback" not in text


async def test_a_reward_that_only_kills_its_workers_stops_the_job_and_is_named(job: Job) -> None:
    process = await job.scorer(breaker=4)
    await job.ask(*["leave"] * 8)
    text = await said(process)
    assert process.returncode == 2
    assert "the reward ended its own worker at 4 answers in a row (last: exit status 3)" in text
    assert "Traceback" not in text


async def test_an_environment_that_raises_hangs_floods_or_dies_spoils_its_own_episode_alone(
    job: Job,
) -> None:
    spec = {
        "entryPoint": "ebbtide.testing.environments:obedient",
        "maxTurns": 2,
        "timeoutSeconds": 1.0,
    }
    process = await job.scorer(environment=spec)
    await job.ask("go", "raise", "hang", "flood", "crash", "1", "outage")
    facts = await job.facts(7)
    process.terminate()
    await said(process)
    assert isinstance(facts[0], TurnReady)
    scores = {n: fact.score for n, fact in facts.items() if isinstance(fact, ScoreReady)}
    invalid = [score.why for score in scores.values() if isinstance(score, Invalid)]
    assert sorted(why.split()[1] for why in invalid) == ["ZeroDivisionError:", "a"]
    faults = [score.fault for score in (scores[2], scores[4]) if isinstance(score, Value)]
    assert faults == ["timeout", "crash"]
    assert scores[5] == Value(1.0, (Part("f", 1.0, 1.0),))
    assert isinstance(scores[6], Error)
