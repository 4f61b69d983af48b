"""`migration`: keys and values from one process to another, and what a sample loses by moving.

The rate: one process exports samples as they come, another pulls them; bytes over wall time from the first export to the last pull, against copying the same bytes
once within a process, in turns, so that a busy machine slows both. Pages are warm on both sides,
as they are after the first seconds of a step. Small samples show the fixed cost of a ticket (about
a millisecond); the figure that is judged is that of the largest.

The pause: a sample is cut with its KV in one torch engine and goes on in another process's; from
the cut command to the first token that the other draws. It may be 50 ms + bytes/bandwidth; the
table shows it beside that allowance. The figure is the rate, and none if a pause is too long.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.harness import Measured
from ebbtide.adapters.clock import SystemClock
from ebbtide.ports import Imported, KvData
from ebbtide.transfer.shm import ShmTransfer, default_folder
from ebbtide.wire import KvKey

SIZES = (1 << 20, 6 << 20, 24 << 20, 56 << 20)
"""Bytes of a sample: 12 KiB a token for a model of 0.5B parameters, 56 KiB for one of 7B."""
SAMPLES, TURNS, WARM, UNDER_WAY = 16, 5, 8, 3
ALLOWED = 0.050
Work = Callable[[Connection, Path], None]


def reader(line: Connection, root: Path) -> None:
    """The other process: pulls what it is told of, and says how much came."""
    asyncio.run(_read(line, root))


async def _read(line: Connection, root: Path) -> None:
    transfer = ShmTransfer(name="reader", epoch=1, clock=SystemClock(), root=root)
    while (ticket := line.recv()) is not None:
        pulled = await transfer.pull(ticket, wanted=ticket.key, seconds=10.0)
        line.send(pulled.kv.data.nbytes if isinstance(pulled, Imported) else 0)
    await transfer.close()


class Line:
    """A process at the other end of a pipe."""

    def __init__(self, work: Work, root: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process = context.Process(target=work, args=(other, root))
        self._process.start()

    def close(self) -> None:
        self.pipe.send(None)
        self._process.join(30.0)
        if self._process.is_alive():
            self._process.kill()


async def _send(holder: ShmTransfer, line: Line, body: memoryview, count: int) -> float:
    """Seconds until the reader has `count` exports of `body`, some of them under way together."""
    under_way, began = 0, time.perf_counter()
    for number in range(count):
        key = KvKey("policy", str(number), len(body), "bytes")
        ticket = await holder.export(KvData(key, body), reader="reader", seconds=60.0)
        line.pipe.send(ticket)
        under_way += 1
        if under_way == UNDER_WAY:
            under_way -= _received(line, body)
            holder.held()
    while under_way:
        under_way -= _received(line, body)
    holder.held()
    return time.perf_counter() - began


def _received(line: Line, body: memoryview) -> int:
    if not line.pipe.poll(30.0):
        raise TimeoutError("the reader does not answer")
    if line.pipe.recv() != len(body):
        raise RuntimeError("a pull brought nothing")
    return 1


def _copy(body: memoryview, into: Sequence[np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> float:
    """Seconds of copying `body` into each of `into`."""
    source, began = np.frombuffer(body, dtype=np.uint8), time.perf_counter()
    for target in into:
        np.copyto(target, source)
    return time.perf_counter() - began


async def _rates(root: Path) -> list[tuple[int, float, float, float]]:
    """For each size: bytes, bytes a second by hand-over and by copy, median ratio of turns."""
    holder = ShmTransfer(name="holder", epoch=1, clock=SystemClock(), root=root)
    line = Line(reader, root)
    rows = []
    for size in SIZES:
        body = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8).data
        places = [np.ones(size, dtype=np.uint8) for _ in range(2)] * (SAMPLES // 2)
        await _send(holder, line, body, WARM)
        _copy(body, places)
        turns = [
            (SAMPLES * size / await _send(holder, line, body, SAMPLES), SAMPLES * size / copied)
            for copied in (_copy(body, places) for _ in range(TURNS))
        ]
        sent, copied = (statistics.median(way) for way in zip(*turns, strict=True))
        rows.append((size, sent, copied, statistics.median(s / c for s, c in turns)))
    line.close()
    await holder.close()
    return rows


def measure() -> Measured:
    """The ratio of a hand-over's rate to a copy's, for 1,024 tokens of a model of 7B."""
    from benchmarks.migration_pause import pauses  # noqa: PLC0415 - torch, after the rates

    with tempfile.TemporaryDirectory(dir=default_folder().parent) as folder:
        rates = asyncio.run(_rates(Path(folder) / "rates"))
        bandwidth = rates[-1][1]
        paused = asyncio.run(pauses(Path(folder) / "pauses"))
    rows: list[tuple[str, float, float, float, str]] = [
        (f"hand-over of {size >> 20} MiB", sent / 2**30, copied / 2**30, ratio, "GiB/s")
        for size, sent, copied, ratio in rates
    ]
    for tokens, size, seconds in paused:
        allowed = ALLOWED + size / bandwidth
        what = f"pause of a sample of {tokens} tokens, {size >> 10} KiB"
        rows.append((what, 1000 * seconds, 1000 * allowed, seconds / allowed, "ms"))
    within = all(row[3] <= 1 for row in rows[len(rates) :])
    ratio = rates[-1][3] if within else math.nan
    return Measured(ratio, ("what", "measured", "copy or allowed", "ratio", "unit"), rows)
