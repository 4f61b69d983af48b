"""Reads ledgers, read only, and keeps the index of the jobs asked for lately."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence

from ebbtide import paths
from ebbtide.errors import NotFound
from ebbtide.ledger import Segment, segment_at
from ebbtide.ports import Blobs
from ebbtide.wire import Record, Spent
from services.gateway.core.history import History, StepView
from services.gateway.core.problems import Problem

_AHEAD = 32
_KEPT = 128
_SECONDS = 30.0


class Histories:
    """Indexes by job uid; each call reads only what the planner wrote since the last one."""

    def __init__(self, *, blobs: Blobs) -> None:
        self._blobs = blobs
        self._kept: OrderedDict[str, tuple[History, asyncio.Lock]] = OrderedDict()

    async def of(self, uid: str) -> History:
        """The index of the whole ledger so far."""
        history, lock = self._kept.setdefault(uid, (History(), asyncio.Lock()))
        self._kept.move_to_end(uid)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        try:
            async with asyncio.timeout(_SECONDS), lock:
                await self._catch_up(uid, history)
        except TimeoutError:
            after = {"Retry-After": "1"}
            detail = "The ledger is long and still being read; ask again."
            raise Problem("unavailable", detail, headers=after) from None
        return history

    async def step(self, uid: str, step: int) -> StepView:
        """The samples of one step."""
        slots = sorted((await self.of(uid)).steps.get(step, ()))
        return StepView(step, await self._records(uid, slots))

    async def spent(self, uid: str, steps: range) -> dict[tuple[str, str, str], float]:
        """Seconds by (role, actor, cause) that these committed steps were charged."""
        known = (await self.of(uid)).spent_in
        slots = sorted({slot for step, found in known.items() if step in steps for slot in found})
        seconds: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for record in await self._records(uid, slots):
            if isinstance(record, Spent) and record.step in steps:
                seconds[record.role, record.pod, record.cause] += record.seconds
        return seconds

    async def _records(self, uid: str, slots: Sequence[int]) -> list[Record]:
        records: list[Record] = []
        for first in range(0, len(slots), _AHEAD):
            window = slots[first : first + _AHEAD]
            for segment in await asyncio.gather(*(self._segment(uid, slot) for slot in window)):
                assert segment is not None, "a segment never goes away"
                records += segment.records
        return records

    async def _catch_up(self, uid: str, history: History) -> None:
        ahead = 1  # twice as many each time: what is asked for in vain is no more than what is new
        while True:
            slots = range(history.next_slot, history.next_slot + ahead)
            for segment in await asyncio.gather(*(self._segment(uid, slot) for slot in slots)):
                if segment is None:
                    return
                history.add(segment.slot, segment.records)
            ahead = min(2 * ahead, _AHEAD)

    async def _segment(self, uid: str, slot: int) -> Segment | None:
        path = paths.segment(uid, slot)
        try:
            return segment_at(path, await self._blobs.get(path))
        except NotFound:
            return None
