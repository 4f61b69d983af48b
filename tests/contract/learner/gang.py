"""A learner as processes: two ranks, the real broker, blobs in a folder.

Ranks are forked from a server that has torch and transformers imported, as the process runner
does it.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import os
import signal
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from ebbtide import streams
from ebbtide.adapters.blobs import StoreBlobs
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.errors import DeadlineExceeded
from ebbtide.ports import Bus
from ebbtide.wire import (
    Fence,
    LearnerBeat,
    LearnerCommand,
    LearnerReply,
    PlannerBeat,
    Working,
    decode,
    encode,
)
from tests.unit.learner.builders import UID, job_spec

DEADLINE = 100.0


class Gang:
    """Ranks of one attempt, started by `async with`; what is left is killed at the end."""

    def __init__(
        self,
        *,
        servers: EmbeddedServers,
        bus: Bus,
        blobs: StoreBlobs,
        folder: Path,
        model: Path,
        attempt: int = 1,
        ranks: int = 2,
        collective_seconds: int = 30,
    ) -> None:
        self.blobs = blobs
        self._bus = bus
        self._attempt = attempt
        self._log = folder / f"log-{attempt}"
        shared = {
            "EBBTIDE_BLOBS_URL": f"file://{folder}/blobs",
            "EBBTIDE_NATS_URL": servers.nats_url,
            "EBBTIDE_NATS_USER": "learner",
            "EBBTIDE_NATS_PASSWORD": servers.credentials.nats["learner"],
            "EBBTIDE_JOB": "job",
            "EBBTIDE_JOB_UID": UID,
            "EBBTIDE_ATTEMPT": str(attempt),
            "EBBTIDE_SPEC": spec_of(model, ranks),
            "EBBTIDE_RENDEZVOUS": f"file://{folder}/meeting-{attempt}",
            "EBBTIDE_COLLECTIVE_SECONDS": str(collective_seconds),
        }
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(
            ["tests.contract.learner.gang", "services.learner.app.shell"]
        )
        self.ranks: list[BaseProcess] = [
            context.Process(
                target=become_rank,
                args=({**shared, "EBBTIDE_RANK": str(n), "EBBTIDE_POD": f"learner-{n}"}, self._log),
            )
            for n in range(ranks)
        ]

    async def __aenter__(self) -> Self:
        for rank in self.ranks:
            rank.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.join(10)

    async def beat(self) -> LearnerBeat:
        """The first beat of this attempt that shows a policy."""
        async with asyncio.timeout(DEADLINE), self._bus.beats(streams.beats(UID)) as beats:
            async for data in beats:
                heard = decode(data, LearnerBeat)
                if heard.attempt == self._attempt and heard.policy is not None:
                    return heard
        raise AssertionError(self.log())

    async def ask(self, command: LearnerCommand) -> LearnerReply:
        """Ask until the answer is not Working any more."""
        async with asyncio.timeout(DEADLINE):
            while True:
                reply = await self.try_once(command)
                if reply is not None and not isinstance(reply, Working):
                    return reply
                await asyncio.sleep(0.1)

    async def try_once(self, command: LearnerCommand) -> LearnerReply | None:
        """One request; None without an answer."""
        subject = streams.learner(UID, self._attempt)
        with suppress(DeadlineExceeded):
            data = await self._bus.request(subject, encode(command), timeout=5.0)
            return decode(data, LearnerReply)  # type: ignore[arg-type]
        return None

    async def planner_lives(self, fence: Fence) -> None:
        """A planner of this fence says that it lives."""
        await self._bus.beat(streams.planner(UID), encode(PlannerBeat(fence)))

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to one rank."""
        pid = self.ranks[rank].pid
        assert pid is not None
        os.kill(pid, number)

    async def exit_code(self, rank: int) -> int | None:
        """How a rank ended, None if it goes on past the deadline."""
        await asyncio.to_thread(self.ranks[rank].join, DEADLINE)
        return self.ranks[rank].exitcode

    def log(self) -> str:
        """What the ranks wrote."""
        return self._log.read_text() if self._log.exists() else ""


def spec_of(model: Path, ranks: int) -> str:
    """The job's spec as the operator writes it."""
    spec = job_spec(model, micro_batch_tokens=64)
    learner = spec.learner.model_copy(update={"ranks": ranks})
    return spec.model_copy(update={"learner": learner}).model_dump_json(by_alias=True)


def become_rank(environment: dict[str, str], log: Path) -> None:
    """Run `python -m services.learner` in this process."""
    from services.learner.__main__ import main  # noqa: PLC0415 - a child's own business

    os.environ.update(environment)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    main()
