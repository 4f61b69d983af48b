from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ebbtide import logs, streams
from ebbtide.demo import tokenizer as demo
from ebbtide.errors import Temporary
from ebbtide.rewards.outcomes import Answer, Judged, Worth
from ebbtide.spec import EnvironmentSpec, RewardSpec, RuleReward
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.rollouts import a_request, a_rollout
from ebbtide.wire import Fact, Ref, Rollout, ScoreReady, ScoreRequest, TurnReady, decode, encode
from services.reward import core
from services.reward.app.episodes import Episodes
from services.reward.app.intake import Intake
from services.reward.app.library import Library, Words
from services.reward.app.metrics import RewardMetrics
from services.reward.app.outlet import Outlet
from services.reward.app.scoring import Scoring

UID = "job-1"


class Blobs(FakeBlobs):
    """Reads fail while `away`, and writes of what turns begin from while `full`."""

    away = full = False

    async def put(self, path: str, data: bytes) -> Ref:
        if self.full and "/given/" in path:
            raise Temporary("the store is full")
        return await super().put(path, data)

    async def get(self, path: str) -> bytes:
        if self.away:
            raise Temporary("the store is away")
        return await super().get(path)


class Stand:
    """A broker, a store, and scorers as a test wants them; with an `environment`, if it is set."""

    environment: Callable[[Answer], Awaitable[core.Verdict]] | None = None
    response_tokens = 64

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bus = FakeBus(clock=self.clock)
        self.blobs = Blobs()
        self.tokenizer = demo.build()
        self.said = io.StringIO()
        self.judged: list[str] = []
        self.breaker = core.Breaker(limit=4, rest=5.0)
        self.registry = CollectorRegistry()

    async def judge(self, answer: Answer) -> core.Verdict:
        """A worker's stand-in: the answer is worth its length; waits a number of seconds."""
        self.judged.append(answer.response)
        if answer.response.isdigit():
            await self.clock.sleep(float(answer.response))
        return Judged((Worth(float(len(answer.response))),), (0.0,))

    @asynccontextmanager
    async def scorer(self, *, drain_seconds: float = 5.0) -> AsyncIterator[asyncio.Event]:
        """A scorer at work; drains at the end, or when the event is set."""
        log = logs.setup("info", stream=self.said)
        self.registry = CollectorRegistry()
        reward = RewardSpec(components=(RuleReward(type="exact", name="c"),), retries=2)
        metrics = RewardMetrics(registry=self.registry, components=reward.components)
        outlet = Outlet(bus=self.bus, clock=self.clock, log=log, instance="pod")
        words = Words(tokenizer=self.tokenizer, stop_ids=frozenset({self.id("</answer>")}))
        role = "user" if self.environment else ""
        scoring = Scoring(
            spec=reward,
            library=Library(blobs=self.blobs, words=words, role=role),
            episodes=self.episodes(words, metrics),
            judge=self.judge,
            breaker=self.breaker,
            clock=self.clock,
            metrics=metrics,
            log=log,
            scorer="pod",
            scorer_digest="digest",
        )
        intake = Intake(
            bus=self.bus,
            scoring=scoring,
            outlet=outlet,
            breaker=self.breaker,
            clock=self.clock,
            metrics=metrics,
            log=log,
            job_uid=UID,
            capacity=16,
        )
        drain = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(outlet.run())
            working = group.create_task(intake.run(drain, drain_seconds=drain_seconds))
            yield drain
            drain.set()
            await working
            publishing.cancel()

    def episodes(self, words: Words, metrics: RewardMetrics) -> Episodes | None:
        if self.environment is None:
            return None
        return Episodes(
            spec=EnvironmentSpec(name="calculator", max_turns=3, max_reply_tokens=8),
            ask=self.environment,
            blobs=self.blobs,
            words=words,
            limit=self.response_tokens,
            deaths=core.Deaths(limit=4, what="environment"),
            metrics=metrics,
        )

    def id(self, token: str) -> int:
        number = self.tokenizer.token_to_id(token)
        assert number is not None
        return int(number)

    async def request(self, index: int, response: str, finish: str = "stop") -> ScoreRequest:
        """The request that scores `response`, whose blobs are written."""
        ids = self.tokenizer.encode(response).ids
        rollout = a_rollout(ids, uid=UID, index=index, finish=finish)
        return await a_request(self.blobs, rollout)

    async def ask(self, request: ScoreRequest, attempt: int = 0) -> None:
        """Publish; `attempt` keeps repetitions apart."""
        name = f"{request.key.index}.{attempt}"
        await self.bus.publish_fact(streams.scoring(UID), encode(request), name)

    async def ask_all(self, *responses: str) -> None:
        for index, response in enumerate(responses):
            await self.ask(await self.request(index, response))

    @property
    def waiting(self) -> int:
        """Requests that are not acknowledged."""
        return len(self.bus.stream(streams.SCORING).messages)

    @property
    def facts(self) -> list[ScoreReady]:
        """Verdicts published so far."""
        return [fact for fact in self.told if isinstance(fact, ScoreReady)]

    @property
    def turns(self) -> list[TurnReady]:
        """Replies of the environment published so far."""
        return [fact for fact in self.told if isinstance(fact, TurnReady)]

    @property
    def told(self) -> list[Fact]:
        stored = self.bus.stream(streams.FACTS).messages.values()
        return [decode(fact.data, Fact) for fact in stored]  # type: ignore[arg-type]

    async def ask_about(self, rollout: Rollout, **row: Any) -> ScoreRequest:
        """Queue the request that scores `rollout`."""
        request = await a_request(self.blobs, rollout, **row)
        await self.ask(request, attempt=len(self.told))
        return request


@pytest.fixture
def run() -> Callable[[Callable[[Stand], Coroutine[Any, Any, None]]], None]:
    """Run a scenario in virtual time."""

    def run(scenario: Callable[[Stand], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await scenario(Stand())

        run_virtual(whole())

    return run
