"""The transfer between processes of one host, through files in shared memory.

Each holder has a folder, and keeps a lock in it for as long as it lives; whoever starts removes
the folders of the dead. An export is one file whose ending is the stage of its lease: a reader
takes it by renaming it, verifies it, and ends by renaming it again, which fails if the holder has
taken it back meanwhile. So no two read it. A reader works on the very pages that were written:
the holder writes into them again only after the reader has let go of them (the ending "returned"),
and drops the file, not its pages, when it takes back what is being read.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ebbtide.errors import Corrupt, Temporary
from ebbtide.ports import Clock, Expired, Imported, KvData, Miss
from ebbtide.transfer import frames
from ebbtide.transfer.arena import Arena, Place, Views
from ebbtide.transfer.frames import Bytes, Frame
from ebbtide.transfer.tickets import Lease, Stage, patience, unfit, unwanted
from ebbtide.wire import KvKey, KvTicket

SPARE_BYTES = 512 << 20
_LOCK = "ebbtide-kv.lock"
_OPAQUE = re.compile(r"(?P<folder>[\w-][\w.-]*)/(?P<stem>[0-9a-f]{8,})")
_RETURNED = "returned"
_LENT_SECONDS = 60.0
"""After so long the pages that a reader keeps are its own, and go when it goes."""


def default_folder() -> Path:
    """Shared memory of this user, or a temporary folder where there is none."""
    memory = Path("/dev/shm")  # noqa: S108 - it is what this is about
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return (memory if usable else Path(tempfile.gettempdir())) / f"ebbtide-{os.getuid()}"


@dataclass
class _Export:
    lease: Lease
    place: Place


@dataclass(frozen=True)
class Reading:
    """An export in this reader's hands. `until`: when this reader gives up."""

    path: Path
    data: Bytes
    frame: Frame
    until: float


class ShmTransfer:
    """`name`: this process, as holder and as reader; `epoch`: new with each start of it."""

    def __init__(
        self, *, name: str, epoch: int, clock: Clock, root: Path, spare: int = SPARE_BYTES
    ) -> None:
        self.name, self.epoch = name, epoch
        self._clock, self._root = clock, root
        self._folder = root / f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)}.{epoch}"
        self._alive = _move_in(root, self._folder)
        self._arena = Arena(self._folder, spare=spare)
        self._views = Views()
        self._exports: dict[bytes, _Export] = {}
        self._lent: list[tuple[Place, float]] = []

    # --- holder ---------------------------------------------------------------------------------

    async def export(self, kv: KvData, *, reader: str, seconds: float) -> KvTicket:
        stem = self._arena.stem()
        opaque = f"{self._folder.name}/{stem}".encode()
        ticket = KvTicket(kv.key, self.name, self.epoch, reader, seconds, opaque)
        lease = Lease(ticket, self._clock.now() + seconds)
        try:
            place = await asyncio.to_thread(self._write, stem, lease, kv)
        except OSError as error:
            raise Temporary(f"KV not exported: {error}") from None
        self._exports[opaque] = _Export(lease, place)
        return ticket

    def release(self, ticket: KvTicket) -> None:
        if export := self._exports.pop(ticket.opaque, None):
            self._take_back(export)

    def held(self) -> Sequence[KvTicket]:
        for opaque, export in list(self._exports.items()):
            stem, path = export.place.stem, self._arena.path
            read = path(stem, Stage.CONSUMED).exists() or path(stem, _RETURNED).exists()
            if read or not export.lease.at(self._clock.now()).open:
                del self._exports[opaque]
                self._take_back(export)
        self._collect()
        return [export.lease.ticket for export in self._exports.values()]

    async def close(self) -> None:
        self._exports.clear()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        os.close(self._alive)

    def _write(self, stem: str, lease: Lease, kv: KvData) -> Place:
        body = np.frombuffer(kv.data, dtype=np.uint8)
        size = frames.body_start(lease.ticket, len(body)) + len(body)
        place = self._arena.take(stem, size)
        frames.write(place.data, lease.ticket, lease.until, body)
        self._arena.move(place, ["writing"], Stage.GRANTED)
        return place

    def _take_back(self, export: _Export) -> None:
        """Wherever it stands: it only moves forward, so one pass meets it."""
        place = export.place
        if self._arena.move(place, [Stage.GRANTED], "spare"):
            self._arena.give_back(place)
        elif self._arena.move(place, [Stage.READING], Stage.EXPIRED):
            self._arena.path(place.stem, Stage.EXPIRED).unlink()
        else:
            self._lent.append((place, self._clock.now()))

    def _collect(self) -> None:
        """Use again what readers have returned; let go of what they keep."""
        lent, self._lent = self._lent, []
        for place, since in lent:
            if self._arena.move(place, [_RETURNED], "spare"):
                self._arena.give_back(place)
            elif self._clock.now() - since < _LENT_SECONDS:
                self._lent.append((place, since))
            else:
                self._arena.path(place.stem, Stage.CONSUMED).unlink(missing_ok=True)

    # --- reader ---------------------------------------------------------------------------------

    async def pull(
        self, ticket: KvTicket, *, wanted: KvKey, seconds: float
    ) -> Imported | Miss | Expired:
        until = self._clock.now() + patience(ticket, seconds)
        return await asyncio.to_thread(self._pull, ticket, wanted, until)

    def _pull(self, ticket: KvTicket, wanted: KvKey, until: float) -> Imported | Miss | Expired:
        found = self.claim(ticket, wanted=wanted, until=until)
        return self.finish(found) if isinstance(found, Reading) else found

    def claim(self, ticket: KvTicket, *, wanted: KvKey, until: float) -> Reading | Miss | Expired:
        """Take the export into this reader's hands, if it is what is wanted."""
        if reason := unwanted(ticket.key, wanted):
            return Miss(reason)
        named = _OPAQUE.fullmatch(ticket.opaque.decode(errors="replace"))
        if named is None:
            return Miss("the ticket names no export")
        path = self._root / named["folder"] / f"{named['stem']}.{Stage.GRANTED}"
        try:
            data = self._views.open(path)
            frame = frames.read_frame(data)
        except FileNotFoundError:
            return Miss("it was read, taken back, or its holder is gone")
        except (OSError, ValueError, Corrupt) as error:
            return Miss(f"it cannot be read: {error}")
        if reason := unfit(ticket, frame.header.ticket, reader=self.name, wanted=wanted):
            return Miss(reason)
        return self._taken(path, data, frame, until)

    def _taken(self, path: Path, data: Bytes, frame: Frame, until: float) -> Reading | Expired:
        until = min(until, frame.header.until)
        if self._clock.now() >= until:
            return Expired("its time was up before it was read")
        mine = path.with_suffix(f".{Stage.READING}")
        return Reading(mine, data, frame, until) if _renamed(path, mine) else _TAKEN

    def finish(self, reading: Reading) -> Imported | Miss | Expired:
        """Verify, then look at the lease again."""
        frame, path = reading.frame, reading.path
        body = reading.data[frame.start : frame.start + frame.size]
        whole = frames.holds(body, frame.header.sums)
        if self._clock.now() >= reading.until:
            return Expired("its time was up while it was read")
        consumed, returned = (path.with_suffix(f".{to}") for to in (Stage.CONSUMED, _RETURNED))
        if not _renamed(path, consumed if whole else returned):
            return Expired("it was taken back while it was read")
        if not whole:
            return Miss("a block of keys and values does not hold")
        # Whoever uses the body keeps it; when the last has let go, the pages go back.
        weakref.finalize(body, _renamed, consumed, returned)
        return Imported(KvData(frame.header.ticket.key, body.data))


_TAKEN = Expired("it was taken back or read by another")


def in_host(*, name: str, clock: Clock, folder: str = "") -> ShmTransfer:
    """A transfer of a process that starts now; raises OSError."""
    root = Path(folder) if folder else default_folder()
    epoch = int(clock.wall() * 1e6)
    return ShmTransfer(name=name, epoch=epoch, clock=clock, root=root)


def _renamed(old: Path, new: Path) -> bool:
    try:
        old.rename(new)
    except FileNotFoundError:
        return False
    return True


def _move_in(root: Path, folder: Path) -> int:
    """Remove what dead holders left, and open a folder of one's own; returns its lock."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(root / f"{_LOCK}.all"):
        for other in root.iterdir():
            if other.is_dir() and _is_dead(other):
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(mode=0o700)
        alive = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return alive


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_dead(folder: Path) -> bool:
    """Whether it is a holder's whose process has ended; a folder without a lock is not ours."""
    try:
        with (folder / _LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
