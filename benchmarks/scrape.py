"""Time of one scrape of the figures of a job with 64 actors, from real files.

`measure()` writes the step reports, held time and ledger of such a job, and asks the gateway's
`GET /v1/metrics` again and again, with one more step before each: what Prometheus does.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
from prometheus_client import CollectorRegistry

from benchmarks.harness import Measured
from ebbtide import logs, paths, usage
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.catalogue import DECODE
from ebbtide.ledger import encode_segment
from ebbtide.metrics import render
from ebbtide.ports import Blobs, Resource
from ebbtide.reports import ActorTimeline, Interval, SampleCounts, StepReport, TokenCounts
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.jobs import a_job
from ebbtide.usage import Usage
from ebbtide.wire import Record, Spent
from services.decode.app.metrics import DecodeMetrics
from services.gateway.app import build
from services.gateway.app.doors import TokenDoor
from services.gateway.settings import GatewaySettings

ACTORS, STEPS, SCRAPES = 64, 100, 40
CAUSES = ("busy", "idle", "loading")


class Job:
    """A job of 64 actors that runs: its files in the store."""

    def __init__(self, blobs: Blobs, job: Resource) -> None:
        self._blobs, self._uid = blobs, job.metadata.uid
        self.steps = 0

    async def begin(self) -> None:
        """Every pod is there."""
        for pod in map(_name, range(ACTORS)):
            held = Usage(self._uid, "decode", pod, f"u-{pod}", "default", 1, 0.0, 1e4)
            await self._blobs.put(paths.usage(self._uid, pod, held.uid), usage.encode(held))

    async def step(self) -> None:
        """One more step is committed."""
        number, self.steps = self.steps, self.steps + 1
        spent: list[Record] = [
            Spent(number, "decode", _name(a), cause, 3.0) for a in range(ACTORS) for cause in CAUSES
        ]
        data = encode_segment(number, bytes(16), spent)
        await self._blobs.put(paths.segment(self._uid, number), data)
        report = _report(self._uid, number).model_dump_json(by_alias=True).encode()
        await self._blobs.put(paths.step_report(self._uid, number), report)


def _name(actor: int) -> str:
    return f"job-decode-{actor}"


def _report(uid: str, step: int) -> StepReport:
    busy = tuple(Interval(cause="busy", start=float(i), end=i + 0.5) for i in range(4))
    return StepReport(
        job_uid=uid,
        step=step,
        attempt=0,
        epoch=1,
        policy=step,
        policy_digest="d",
        next_policy=step + 1,
        next_policy_digest="d",
        samples=SampleCounts(expected=4096, accepted=4096, valued=4096),
        tokens=TokenCounts(prompt=4096, response=4096 * 300),
        actors=tuple(ActorTimeline(name=_name(a), intervals=busy) for a in range(ACTORS)),
    )


async def _run(folder: Path) -> tuple[float, list[float], int]:
    cluster, blobs = FakeCluster(wall=time.time), open_blobs(folder.as_uri())
    job = Job(blobs, await cluster.create(msgspec.structs.replace(a_job())))
    await job.begin()
    for _ in range(STEPS):
        await job.step()
    app = build(
        settings=GatewaySettings(blobs_url=folder.as_uri(), insecure=True),
        cluster=cluster,
        blobs=blobs,
        clock=SystemClock(),
        registry=CollectorRegistry(),
        log=logs.setup("error"),
        door=TokenDoor(None),
        closing=asyncio.Event(),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        first, size = await _scrape(http)
        later = []
        for _ in range(SCRAPES):
            await job.step()
            later.append((await _scrape(http))[0])
    return first, later, size


async def _scrape(http: httpx.AsyncClient) -> tuple[float, int]:
    began = time.perf_counter()
    answer = await http.get("/v1/metrics")
    assert answer.status_code == httpx.codes.OK, answer.text
    return (time.perf_counter() - began) * 1e3, len(answer.text.splitlines())


def _actor() -> float:
    """Milliseconds of one actor's own exposition."""
    registry = CollectorRegistry()
    DecodeMetrics(registry)
    began = time.perf_counter()
    for _ in range(SCRAPES):
        render(registry)
    return (time.perf_counter() - began) / SCRAPES * 1e3


def measure() -> Measured:
    """Milliseconds of a scrape: the median, one new step each."""
    with tempfile.TemporaryDirectory() as folder:
        first, later, lines = asyncio.run(_run(Path(folder)))
    median = statistics.median(later)
    return Measured(
        value=median,
        columns=("what", "milliseconds"),
        rows=[
            (f"first scrape, {STEPS} steps to read", first),
            (f"next scrapes, median of {SCRAPES} ({lines} lines)", median),
            ("slowest of these", max(later)),
            (f"one actor's own ({len(DECODE.metrics)} metrics)", _actor()),
        ],
    )
