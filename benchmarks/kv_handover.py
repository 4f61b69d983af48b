"""`kv_handover`: keys and values by NIXL from process to process, against NIXL's own rate.

The same bytes in the same two processes, in turns, so that a busy machine slows both: claimed,
read, verified and settled as an actor does it; and one bare read of registered memory. Memory is
registered and connections are made before. The figure is the median ratio at the largest size.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Measured
from benchmarks.migration import SIZES, Line
from ebbtide.adapters.clock import SystemClock
from ebbtide.ports import Imported, KvData
from ebbtide.transfer.nixl import NixlLane, over_nixl
from ebbtide.transfer.remote import RemoteTransfer
from ebbtide.wire import KvKey

TURNS, WARM = 12, 2


def _unheard(start: int, stop: int) -> None:
    """A bare read verifies nothing."""


def holder(line: Connection, _: Path) -> None:
    """The other process: exports, or offers its memory, as it is told."""
    asyncio.run(_hold(line))


async def _hold(line: Connection) -> None:
    transfer = over_nixl(name="holder", clock=SystemClock(), host="127.0.0.1")
    bare = NixlLane("bare-holder")
    while (asked := line.recv()) is not None:
        what, size = asked
        if what == "ticket":
            line.send(await _export(transfer, size))
        else:
            _offer(line, bare, size)
    await transfer.close()


async def _export(transfer: RemoteTransfer, size: int) -> Any:
    transfer.held()
    data = np.full(size, 7, dtype=np.uint8)
    key = KvKey("policy", "prefix", 1, "layout")
    return await transfer.export(KvData(key, data.data), reader="reader", seconds=60.0)


def _offer(line: Connection, lane: NixlLane, size: int) -> None:
    """Offer `size` bytes, and help until the reader has read them."""
    place = lane.open(size)
    place.data[:] = 7
    line.send(lane.offer(place))
    while not line.poll(0.0001):
        lane.progress()
    line.recv()
    lane.drop(place)


async def _pulled(line: Line, reader: RemoteTransfer, size: int) -> float:
    line.pipe.send(("ticket", size))
    ticket = line.pipe.recv()
    began = time.perf_counter()
    pulled = await reader.pull(ticket, wanted=ticket.key, seconds=20.0)
    seconds = time.perf_counter() - began
    assert isinstance(pulled, Imported), pulled
    return size / seconds


def _read(line: Line, lane: NixlLane, size: int) -> float:
    """The second of two reads: the first one makes the memory known."""
    line.pipe.send(("offer", size))
    offer, place = line.pipe.recv(), lane.open(size)
    lane.read(offer, place, size, 20.0, _unheard)
    began = time.perf_counter()
    lane.read(offer, place, size, 20.0, _unheard)
    seconds = time.perf_counter() - began
    line.pipe.send("read")
    lane.drop(place)
    return size / seconds


async def _race(root: Path) -> list[tuple[int, float, float, float]]:
    """For each size: bytes, ours and the bare rate (bytes per second, medians), median ratio."""
    line = Line(holder, root)
    reader = over_nixl(name="reader", clock=SystemClock(), host="127.0.0.1")
    lane, rows = NixlLane("bare-reader"), []
    for size in SIZES:
        turns = [
            (await _pulled(line, reader, size), _read(line, lane, size))
            for _ in range(WARM + TURNS)
        ][WARM:]
        ours, bare = (statistics.median(column) for column in zip(*turns, strict=True))
        rows.append((size, ours, bare, statistics.median(a / b for a, b in turns)))
    line.pipe.send(None)
    await reader.close()
    return rows


def measure() -> Measured:
    """The median ratio at the largest size."""
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_race(Path(folder)))
    shown = [(size >> 20, ours / 2**30, bare / 2**30, ratio) for size, ours, bare, ratio in rows]
    columns = ("MiB", "ours, GiB/s", "bare NIXL, GiB/s", "ratio")
    return Measured(rows[-1][-1], columns, shown)
