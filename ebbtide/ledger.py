"""The job's ledger: what was accepted, scored, frozen and committed (protocol.md 2).

One chain of segments per job, each written once by a conditional put at the next free slot. The
framing is pure (`encode_segment`, `decode_segment`; byte by byte in docs/formats.md); `Ledger`
adds the blob store. Only the planner writes. A starting planner replays the chain and appends a
segment that begins with its Epoch: that one put claims the epoch and ends what came before, for
a zombie's next put finds its slot taken.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from ebbtide import paths
from ebbtide.errors import Corrupt, Fenced, NotFound, Refused, Temporary
from ebbtide.ports import Blobs, Clock
from ebbtide.wire import Epoch, Record, Ref, encode

MAGIC = b"EBLG"
VERSION = 1
WRITER_BYTES = 16
_HEAD = struct.Struct("<4sHHQ16sIQ")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<II")
_DECODER = msgspec.msgpack.Decoder(Record)

_READ_AHEAD = 32
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Segment(msgspec.Struct, frozen=True):
    """One decoded segment. `writer` is random per process: equal bytes mean one's own write."""

    slot: int
    writer: bytes
    records: tuple[Record, ...]


# --- framing (pure) -----------------------------------------------------------------------------


def encode_segment(slot: int, writer: bytes, records: Sequence[Record]) -> bytes:
    """Frame `records` as the segment of `slot`."""
    assert len(writer) == WRITER_BYTES
    body = b"".join(_framed(encode(record)) for record in records)
    head = _HEAD.pack(MAGIC, VERSION, 0, slot, writer, len(records), len(body))
    return head + _CRC.pack(zlib.crc32(head)) + body


def decode_segment(data: bytes) -> Segment:
    """Inverse of `encode_segment`; raises Corrupt unless every byte is as it was written."""
    start = _HEAD.size + _CRC.size
    if len(data) < start:
        raise Corrupt(f"ledger segment of {len(data)} bytes is shorter than its header")
    head = data[: _HEAD.size]
    magic, version, _, slot, writer, count, size = _HEAD.unpack(head)
    if magic != MAGIC or zlib.crc32(head) != _CRC.unpack_from(data, _HEAD.size)[0]:
        raise Corrupt("ledger segment with a damaged header")
    if version != VERSION:
        raise Corrupt(f"ledger segment of version {version}; this program reads {VERSION}")
    if len(data) != start + size:
        raise Corrupt(f"ledger segment {slot} has {len(data) - start} of {size} body bytes")
    return Segment(slot, writer, tuple(_records(data, start, count)))


def segment_at(path: str, data: bytes) -> Segment:
    """`decode_segment` for what was read at `path`, which its Corrupt names."""
    try:
        return decode_segment(data)
    except Corrupt as error:
        raise Corrupt(f"{path}: {error}") from None


def _framed(payload: bytes) -> bytes:
    length = _CRC.pack(len(payload))
    return length + _CRC.pack(zlib.crc32(payload, zlib.crc32(length))) + payload


def _records(data: bytes, start: int, count: int) -> list[Record]:
    records: list[Record] = []
    at = start
    for _ in range(count):
        payload, at = _unframed(data, at)
        records.append(_record(payload))
    if at != len(data):
        raise Corrupt("ledger segment with bytes after its last record")
    return records


def _unframed(data: bytes, at: int) -> tuple[bytes, int]:
    begin = at + _FRAME.size
    if begin > len(data):
        raise Corrupt(f"ledger segment ends inside a frame at byte {at}")
    length, crc = _FRAME.unpack_from(data, at)
    payload = data[begin : begin + length]
    if len(payload) != length or zlib.crc32(payload, zlib.crc32(_CRC.pack(length))) != crc:
        raise Corrupt(f"ledger record at byte {at} is damaged")
    return payload, begin + length


def _record(payload: bytes) -> Record:
    try:
        return _DECODER.decode(payload)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"ledger record of an unknown form: {error}") from None


# --- the chain ----------------------------------------------------------------------------------


async def read_chain(blobs: Blobs, uid: str, start: int = 0) -> AsyncIterator[Segment]:
    """All segments from slot `start` on, in order; raises Corrupt at a hole or a bad segment."""
    names = [path for path in await blobs.list(paths.segments(uid)) if _slot(path) >= start]
    for first in range(0, len(names), _READ_AHEAD):
        window = names[first : first + _READ_AHEAD]
        for offset, data in enumerate(await asyncio.gather(*map(blobs.get, window))):
            slot = start + first + offset
            segment = segment_at(window[offset], data)
            if segment.slot != slot or paths.segment(uid, slot) != window[offset]:
                raise Corrupt(f"ledger of {uid}: {window[offset]} stands where slot {slot} should")
            yield segment


def _slot(path: str) -> int:
    name = path.rpartition("/")[2]
    if not name.endswith(".seg") or not name[:-4].isdigit():
        raise Corrupt(f"{path} does not belong in a ledger")
    return int(name[:-4])


class Ledger:
    """The chain of one job, in the hands of one planner process.

    `writer`: 16 random bytes, new in each process. `patience`: seconds for which a failing blob
    store is tried again. After any exception from `claim` or `append` the object is spent: the
    process ends, and the next one replays.
    """

    def __init__(
        self, *, blobs: Blobs, clock: Clock, uid: str, writer: bytes, patience: float = 60.0
    ) -> None:
        self._blobs = blobs
        self._clock = clock
        self._uid = uid
        self._writer = writer
        self._patience = patience
        self._lock = asyncio.Lock()
        self._next = 0
        self._last: Epoch | None = None
        self._epoch: Epoch | None = None
        self._spent = False

    @property
    def epoch(self) -> Epoch:
        """The epoch that this object holds; only after `claim`."""
        assert self._epoch is not None, "claim an epoch first"
        return self._epoch

    @property
    def next_slot(self) -> int:
        """The slot that the next segment will take."""
        return self._next

    async def take_over(
        self, apply: Callable[[Record], None], *, attempt: int, parent: Callable[[], Ref | None]
    ) -> Epoch:
        """Replay everything into `apply`, then claim the next epoch (which is applied too).

        `parent` gives the manifest that the attempt restores from, once all is replayed. Raises
        Fenced if the ledger knows a newer attempt, Refused if the store cannot hold a ledger.
        """
        while True:
            await self.replay(apply)
            claimed = await self.claim(attempt=attempt, parent=parent())
            if claimed is not None:
                apply(claimed)
                return claimed

    async def replay(self, apply: Callable[[Record], None]) -> None:
        """Apply every record from where the last replay ended."""
        async for segment in read_chain(self._blobs, self._uid, self._next):
            for record in segment.records:
                if isinstance(record, Epoch):
                    self._last = record
                apply(record)
            self._next = segment.slot + 1

    async def claim(self, *, attempt: int, parent: Ref | None) -> Epoch | None:
        """Claim the epoch after the last one replayed; None if another wrote first: replay."""
        assert self._epoch is None, "one object claims one epoch"
        if self._last is not None and self._last.attempt > attempt:
            raise Fenced(f"attempt {attempt} is over: the ledger is at {self._last.attempt}")
        number = self._last.n + 1 if self._last else 1
        epoch = Epoch(n=number, attempt=attempt, seals=self._next, parent=parent)
        if not await self._put([epoch]):
            return None
        await self._prove([epoch])
        self._epoch = self._last = epoch
        return epoch

    async def append(self, records: Sequence[Record]) -> None:
        """Write `records` as one segment; they are durable when this returns.

        Raises Fenced if another planner took over, Temporary if the blob store failed for
        longer than `patience`.
        """
        assert self._epoch is not None, "claim an epoch first"
        async with self._lock:
            if not await self._put(records):
                self._spent = True
                raise Fenced(f"epoch {self._epoch.n} is over: slot {self._next} is taken")

    async def _put(self, records: Sequence[Record]) -> bool:
        """Whether the next slot is ours. Cancelled or failed, nobody knows: the object is spent."""
        assert not self._spent, "a ledger that failed must not be used again"
        self._spent = True
        data = encode_segment(self._next, self._writer, records)
        path = paths.segment(self._uid, self._next)
        won = await self._insist(lambda: self._put_once(path, data))
        self._spent = False
        self._next += won
        return won

    async def _prove(self, records: Sequence[Record]) -> None:
        """Write what was written last once more: a store that takes it would take a zombie's."""
        slot = self._next - 1
        path, data = paths.segment(self._uid, slot), encode_segment(slot, self._writer, records)
        if await self._insist(lambda: self._blobs.put_if_absent(path, data)):
            self._spent = True
            raise Refused(
                "blobs: this store writes over what is there when told not to (put_if_absent), so"
                " it can hold no ledger; use a folder, or a store with conditional writes"
            )

    async def _insist(self, put: Callable[[], Awaitable[bool]]) -> bool:
        deadline = self._clock.now() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return await put()
            except Temporary:
                if self._clock.now() + pause > deadline:
                    raise
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _put_once(self, path: str, data: bytes) -> bool:
        if await self._blobs.put_if_absent(path, data):
            return True
        try:
            return await self._blobs.get(path) == data
        except NotFound:
            raise Temporary(f"{path} exists and cannot be read yet") from None
