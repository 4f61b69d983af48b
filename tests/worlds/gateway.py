"""A gateway over fakes: what the tests of its routes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from ebbtide import logs, paths, tokens
from ebbtide.ledger import encode_segment
from ebbtide.ports import Clock, Resource
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.cluster import FakeCluster
from ebbtide.wire import Record
from services.gateway.app import build
from services.gateway.app.doors import TokenDoor
from services.gateway.settings import GatewaySettings

TOKEN = "ebt_test-token"
WRITER = bytes(16)


class QuickClock:
    """Time that passes only when somebody waits for it, and then at once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1_700_000_000.0 + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class World:
    """Fakes behind one gateway, and a client that shows its token."""

    def __init__(self, *, real_time: Clock | None = None, **settings: Any) -> None:
        self.clock = QuickClock()
        self._real_time = real_time
        self.cluster = FakeCluster(wall=self._tick)
        self.blobs = FakeBlobs()
        self.closing = asyncio.Event()
        self.settings = GatewaySettings(
            **{"blobs_url": "memory:///", "check_paths": False, "poll_seconds": 0.1, **settings}
        )
        self._created = 0.0

    def _tick(self) -> float:
        self._created += 1.0  # every write has a time of its own, so lists have an order
        return 1_700_000_000.0 + self._created

    def app(self) -> ASGIApp:
        known = None if self.settings.insecure else tokens.parse(tokens.line("team-a", TOKEN))
        return build(
            settings=self.settings,
            cluster=self.cluster,
            blobs=self.blobs,
            clock=self._real_time or self.clock,
            registry=CollectorRegistry(),
            log=logs.setup("error"),
            door=TokenDoor(known),
            closing=self.closing,
        )

    @asynccontextmanager
    async def client(self, token: str = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app(), raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gateway", headers=headers
        ) as client:
            yield client

    async def put_job(self, name: str = "demo", **status: Any) -> Resource:
        """Store a job as `kubectl` would."""
        document = a_job(name)
        made = await self.cluster.create(msgspec.convert(document, Resource))
        if not status:
            return made
        return await self.cluster.patch_status("RLHFJob", "default", name, status)

    async def end(self, name: str, kind: str = "Complete", reason: str = "AllStepsDone") -> None:
        """Give the job its terminal condition."""
        status = {"conditions": [condition(kind, reason=reason)]}
        await self.cluster.patch_status("RLHFJob", "default", name, status)

    async def put_ledger(self, uid: str, *segments: list[Record]) -> None:
        """Write the job's ledger."""
        for slot, records in enumerate(segments):
            data = encode_segment(slot, WRITER, records)
            await self.blobs.put(paths.segment(uid, slot), data)


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    """A condition with a time that sorts."""
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", **more}


def a_job(name: str | None = "demo", **spec: Any) -> dict[str, Any]:
    """A small valid job document."""
    metadata = {} if name is None else {"metadata": {"name": name}}
    source = {"type": "reasoning_gym", "task": "word_sequence_reversal", "size": 8}
    return {
        "apiVersion": "rlhf.ebbtide.dev/v1alpha1",
        "kind": "RLHFJob",
        **metadata,
        "spec": {
            "model": {"uri": "/models/tiny"},
            "dataset": {"train": source},
            "algorithm": {"type": "grpo"},
            "training": {"totalSteps": 3},
            "reward": {"components": [{"type": "reasoning_gym", "name": "task"}]},
            **spec,
        },
    }


def key(value: str = "k-1") -> Mapping[str, str]:
    """The header of a submission."""
    return {"Idempotency-Key": value}
