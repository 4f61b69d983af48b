"""The learner as it runs: processes, the real broker, files; and ranks that die."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ebbtide.adapters.blobs import StoreBlobs, open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.nats import open_bus
from ebbtide.ledger import Ledger
from ebbtide.logs import setup
from ebbtide.runtime import EXIT_FENCED, EXIT_OK, EXIT_REFUSED, EXIT_TEMPORARY
from ebbtide.wire import Fence, Learn, Learned, PolicyRef, Ref, Refusal, Save, Saved
from tests.contract.learner.gang import Gang
from tests.unit.learner.builders import UID, a_batch, commit
from tests.unit.learner.gangs import save_model

Start = Callable[..., Gang]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def start(servers: EmbeddedServers, model: Path, tmp_path: Path) -> AsyncIterator[Start]:
    blobs = open_blobs(f"file://{tmp_path}/blobs")
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            open_bus(
                servers.nats_url,
                user="planner",
                password=servers.credentials.nats["planner"],
                log=setup("error"),
            )
        )

        def make(**change: Any) -> Gang:
            given = {"model": model, **change}
            return Gang(servers=servers, bus=bus, blobs=blobs, folder=tmp_path, **given)

        yield make


async def one_update(gang: Gang, *, step: int = 0, attempt: int = 1) -> Learned:
    policy = (await gang.beat()).policy
    assert policy is not None
    command = await a_batch(gang.blobs, policy, step=step, attempt=attempt, ranks=2)
    reply = await gang.ask(command)
    assert isinstance(reply, Learned), (reply, gang.log())
    return reply


async def claim_epoch(blobs: StoreBlobs, attempt: int, parent: Ref | None) -> None:
    ledger = Ledger(blobs=blobs, clock=SystemClock(), uid=UID, writer=os.urandom(16))
    await ledger.take_over(lambda _: None, attempt=attempt, parent=lambda: parent)


async def test_two_ranks_learn_publish_save_and_restore(start: Start) -> None:
    async with start() as first:
        before = await first.beat()
        learned = await one_update(first)
        assert learned.policy != before.policy
        saved = await first.ask(Save(Fence(1, 1), 1))
        assert isinstance(saved, Saved)
        assert len([ref for ref in saved.shards if ref.path.endswith(".distcp")]) == 2
        expected = await one_update(first, step=1)
        parent = await commit(first.blobs, saved)
    await claim_epoch(first.blobs, 2, parent)
    async with start(attempt=2) as second:
        assert (await second.beat()).policy == learned.policy
        assert (await one_update(second, step=1, attempt=2)).policy == expected.policy


async def test_the_same_command_gets_the_same_answer_and_a_stale_base_is_refused(
    start: Start,
) -> None:
    async with start() as gang:
        learned = await one_update(gang)
        again = Learn(Fence(1, 1), learned.token, Ref("any", learned.token.manifest_digest, 1))
        assert await gang.ask(again) == learned
        stale = await a_batch(gang.blobs, PolicyRef(0, 1, "old"), step=1, ranks=2)
        reply = await gang.ask(stale)
        assert isinstance(reply, Refusal)
        assert reply.code == "policy"
        fenced = await gang.ask(Save(Fence(2, 1), 1))
        assert isinstance(fenced, Refusal)
        assert fenced.code == "fenced"


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_dead_rank_ends_the_others_at_once(start: Start, rank: int) -> None:
    async with start() as gang:
        await gang.beat()
        gang.signal(rank, signal.SIGKILL)
        assert await gang.exit_code(1 - rank) == EXIT_TEMPORARY, gang.log()
        assert "the gang broke" in gang.log()
        assert "imed out" not in gang.log()


async def test_a_rank_that_dies_at_work_ends_the_others(start: Start) -> None:
    async with start() as gang:
        policy = (await gang.beat()).policy
        assert policy is not None
        command = await a_batch(gang.blobs, policy, ranks=2, groups=60)
        await gang.try_once(command)
        gang.signal(1, signal.SIGKILL)
        assert await gang.exit_code(0) == EXIT_TEMPORARY, gang.log()


async def test_a_rank_that_hangs_ends_the_others_at_the_time_out(start: Start) -> None:
    async with start(collective_seconds=10) as gang:
        await gang.beat()
        gang.signal(1, signal.SIGSTOP)
        assert await gang.exit_code(0) == EXIT_TEMPORARY, gang.log()


async def test_a_rank_leaves_when_asked_to(start: Start) -> None:
    async with start() as gang:
        await gang.beat()
        gang.signal(0, signal.SIGTERM)
        gang.signal(1, signal.SIGTERM)
        assert await gang.exit_code(0) == EXIT_OK
        assert await gang.exit_code(1) in (EXIT_OK, EXIT_TEMPORARY)


async def test_a_gang_that_was_paused_and_replaced_ends_by_itself(start: Start) -> None:
    async with start() as gang:
        await gang.beat()
        for rank in (0, 1):
            gang.signal(rank, signal.SIGSTOP)
            gang.signal(rank, signal.SIGCONT)
        await gang.planner_lives(Fence(1, 7))
        assert (await gang.beat()).phase == "idle"
        await gang.planner_lives(Fence(2, 1))
        assert await gang.exit_code(0) == EXIT_FENCED, gang.log()
        assert await gang.exit_code(1) == EXIT_TEMPORARY, gang.log()
        assert "attempt 2 has begun" in gang.log()


async def test_a_superseded_attempt_does_not_even_start(start: Start) -> None:
    gang = start(ranks=1)
    await claim_epoch(gang.blobs, 2, None)
    async with gang:
        assert await gang.exit_code(0) == EXIT_FENCED
        assert "is over" in gang.log()


async def test_a_missing_model_is_named_without_a_traceback(start: Start, tmp_path: Path) -> None:
    async with start(ranks=1, model=tmp_path / "nothing") as gang:
        assert await gang.exit_code(0) == EXIT_REFUSED
        assert "not a model folder" in gang.log()
        assert "Traceback" not in gang.log()
