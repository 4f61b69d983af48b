"""Actors and the prefill service over a broker in memory; the engine is a stand-in."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from ebbtide import logs, paths, streams
from ebbtide.engines.policies import policy_digest
from ebbtide.errors import Permanent
from ebbtide.kv import kv_key
from ebbtide.ports import EngineCaps, KvData
from ebbtide.ports.engine import Loaded
from ebbtide.runtime import Process
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.spans import FakeSpans
from ebbtide.testing.transfer import FakeHost, FakeTransfer
from ebbtide.tracing import StepTrace
from ebbtide.wire import (
    Assign,
    Dispatch,
    EngineStats,
    Fence,
    KvKey,
    LoadPolicy,
    Ok,
    PolicyIndex,
    PolicyRef,
    PolicyTensor,
    PrefillBeat,
    PromptRef,
    Ref,
    SampleKey,
    Sampling,
    decode,
    encode,
    pack_ints,
)
from services.decode.app.metrics import DecodeMetrics
from services.decode.app.prompts import Prompts
from services.prefill.app.shell import Shell, World
from services.prefill.core.desk import Limits
from services.prefill.settings import PrefillSettings

UID, LAYOUT, FENCE = "job-1", "l", Fence(1, 1)
PROMPT = pack_ints([5, 6, 7])


class Engine:
    """Prefills in `seconds`, and counts what it was asked for."""

    def __init__(self, clock: VirtualClock) -> None:
        self.caps = EngineCaps(True, True, 16, LAYOUT, False)
        self.asked: list[bytes] = []
        self.seconds, self.broken = 0.1, False
        self._clock = clock

    async def load(self, policy: PolicyRef, index: object) -> Loaded:
        return Loaded(policy, b"")

    async def prefill(self, policy: PolicyRef, tokens: bytes) -> KvData:
        self.asked.append(tokens)
        await self._clock.sleep(self.seconds)
        if self.broken:
            raise Permanent("the engine broke")
        n = len(tokens) // 4 - 1
        return KvData(kv_key(policy, tokens, n, LAYOUT), memoryview(tokens))

    def stats(self) -> EngineStats:
        return EngineStats(prefill_tokens=2 * len(self.asked))


class Stand:
    """A broker, a host, a prefill service and the part of actors that asks it."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.bus = FakeBus(clock=self.clock)
        self.blobs = FakeBlobs(folder=folder)
        self.host = FakeHost(clock=self.clock)
        self.engine: Any = Engine(self.clock)
        self.log = logs.setup("error", stream=io.StringIO())
        self.metrics: dict[str, DecodeMetrics] = {}
        self.spans = FakeSpans()

    async def publish(self) -> tuple[PolicyRef, Ref]:
        tensors = (PolicyTensor("w", "F32", (1,), "w", "digest"),)
        policy = PolicyRef(0, 1, policy_digest(tensors))
        index = PolicyIndex(policy, tensors, (), (), b"", b"")
        path = f"{paths.policy(UID, 1, 0)}index.msgpack"
        return policy, await self.blobs.put(path, encode(index))

    @asynccontextmanager
    async def service(self, *, load: bool = True) -> AsyncIterator[Process]:
        settings = PrefillSettings(blobs_url="memory:///", job="job", job_uid=UID, pod="p0")
        world = World(
            settings=settings,
            limits=Limits(),
            blobs=self.blobs,
            bus=self.bus,
            engine=self.engine,
            transfer=FakeTransfer(self.host, name="p0"),
            clock=self.clock,
        )
        async with asyncio.TaskGroup() as group:
            registry = CollectorRegistry()
            process = Process(group=group, registry=registry, log=self.log, spans=self.spans)
            work = group.create_task(Shell(world=world, process=process).run())
            await asyncio.sleep(0.1)
            if load:
                await self.load()
            yield process
            work.cancel()
            process.stop_background()

    async def load(self) -> None:
        command = encode(LoadPolicy(FENCE, *await self.publish()))
        reply = await self.bus.request(streams.prefill(UID, "p0"), command, 5.0)
        assert isinstance(decode(reply, Ok), Ok)
        async with self.bus.beats(streams.beat(UID, "prefill", "p0")) as beats:
            async for data in beats:
                if decode(data, PrefillBeat).state == "serving":
                    return

    def actor(self, pod: str) -> Prompts:
        metrics = self.metrics[pod] = DecodeMetrics(CollectorRegistry())
        return Prompts(
            bus=self.bus,
            transfer=FakeTransfer(self.host, name=pod),
            engine=self.engine,
            metrics=metrics,
            log=self.log,
            job_uid=UID,
            pod=pod,
            ask=5.0,
            patience=5.0,
            keep=1 << 20,
        )

    def outcome(self, pod: str, outcome: str) -> float:
        counted = self.metrics[pod].totals.counted()
        return sum(c.value for c in counted if (c.name, c.label) == ("prompt_requests", outcome))


def assign(policy: PolicyRef, seq: int = 0, layout: str = LAYOUT, step: int = 0) -> Assign:
    return Assign(
        key=SampleKey(UID, step, 0, seq),
        dispatch=Dispatch(1, 1, seq),
        policy=policy,
        prompt_id="p",
        prompt_ref=PromptRef(Ref("chunk", "", 0), 0),
        sampling=Sampling(1.0, ()),
        noise_key=b"",
        max_new_tokens=4,
        kv=KvKey(policy.digest, "", 2, layout),
    )


Scenario = Callable[[Stand], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            async with asyncio.timeout(600.0):
                await scenario(Stand(tmp_path))

        run_virtual(whole())

    return run


def test_siblings_on_two_actors_cost_one_prefill_and_two_tickets(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        actors = [stand.actor("a0"), stand.actor("a1")]
        async with stand.service():
            asked = (a.kv(assign(policy, n), PROMPT) for a in actors for n in range(4))
            found = await asyncio.gather(*asked)
        assert [bytes(kv.data) for kv in found if kv] == [PROMPT] * 8
        assert stand.engine.asked == [PROMPT]
        assert [stand.outcome(pod, "imported") for pod in ("a0", "a1")] == [1, 1]

    run(scenario)


def test_without_a_service_the_actor_computes_at_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        began = stand.clock.now()
        assert await stand.actor("a0").kv(assign(policy), PROMPT) is None
        assert stand.clock.now() - began < 1.0
        assert stand.outcome("a0", "silent") == 1

    run(scenario)


def test_a_slow_service_is_not_waited_for(run: Callable[[Scenario], None]) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        stand.engine.seconds = 60.0
        async with stand.service():
            began = stand.clock.now()
            assert await stand.actor("a0").kv(assign(policy), PROMPT) is None
            assert stand.clock.now() - began < 6.0

    run(scenario)


def test_a_service_without_the_policy_refuses_and_the_actor_computes(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        async with stand.service(load=False):
            assert await stand.actor("a0").kv(assign(policy), PROMPT) is None
        assert stand.outcome("a0", "refused") == 1

    run(scenario)


def test_kv_of_another_layout_is_not_asked_for(run: Callable[[Scenario], None]) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        async with stand.service():
            assert await stand.actor("a0").kv(assign(policy, layout="m"), PROMPT) is None
        assert stand.engine.asked == []
        assert stand.outcome("a0", "unfit") == 1

    run(scenario)


def test_what_is_no_request_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario(stand: Stand) -> None:
        async with stand.service(load=False):
            data = await stand.bus.request(streams.tickets(UID), b"no", 5.0)
            assert msgspec.msgpack.decode(data)["code"] == "invalid"

    run(scenario)


def test_a_broken_engine_ends_the_process(run: Callable[[Scenario], None]) -> None:
    async def scenario(stand: Stand) -> None:
        policy, _ = await stand.publish()
        stand.engine.broken = True
        with pytest.raises(ExceptionGroup):
            async with stand.service():
                assert await stand.actor("a0").kv(assign(policy), PROMPT) is None

    run(scenario)


def test_what_was_computed_is_one_span_of_the_step_that_needed_it(run: Any) -> None:
    async def scenario(stand: Stand) -> None:
        async with stand.service():
            policy, _ = await stand.publish()
            texts = [PROMPT, pack_ints([5, 9, 7])]
            asked = [
                stand.actor(f"a{n}").kv(assign(policy, seq=n, step=3), text)
                for n, text in enumerate(texts)
            ]
            await asyncio.gather(*asked)
            await stand.clock.sleep(1.0)
        (span,) = stand.spans.told
        assert (span.trace, span.role) == (StepTrace(UID, 1, 3).id, "prefill")
        assert (span.attributes["ebbtide.prompts"], span.attributes["ebbtide.tokens"]) == (2, 4)
        assert span.end - span.start == pytest.approx(0.1, abs=1e-3)

    run(scenario)
