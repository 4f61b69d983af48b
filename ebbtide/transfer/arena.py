"""A holder's files in shared memory, each mapped once and used again and again.

Making pages costs far more than filling them (measured: 0.5 against 4.8 GiB/s), so what has
been read becomes the place of the next export. A file's name says whose turn it is.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ebbtide.transfer.frames import Bytes

_STEP = 1 << 20


@dataclass
class Place:
    """A file of `size` bytes; `stem` is new with each export that it holds."""

    stem: str
    size: int
    data: Bytes


class Arena:
    """Files of one holder in `folder`. `spare` bytes are kept when nothing is held."""

    def __init__(self, folder: Path, *, spare: int) -> None:
        self._folder = folder
        self._spare = spare
        self._numbers = itertools.count()
        self._free: list[Place] = []
        self._lock = threading.Lock()

    def stem(self) -> str:
        """A name that was never used here."""
        return f"{next(self._numbers):08x}"

    def take(self, stem: str, size: int) -> Place:
        """A place of at least `size` bytes, named `stem`.writing; raises OSError."""
        with self._lock:
            fitting = [place for place in self._free if place.size >= size]
            if not fitting:
                return self._new(stem, -(-size // _STEP) * _STEP)
            place = min(fitting, key=lambda p: p.size)
            self._free.remove(place)
        self.path(place.stem, "spare").rename(self.path(stem, "writing"))
        place.stem = stem
        return place

    def move(self, place: Place, stages: Iterable[str], to: str) -> str:
        """Rename from the first of `stages` that it has, in the order in which they follow.

        Returns that stage, or nothing if it has none of them.
        """
        for stage in stages:
            try:
                self.path(place.stem, stage).rename(self.path(place.stem, to))
            except FileNotFoundError:
                continue
            return stage
        return ""

    def give_back(self, place: Place) -> None:
        """`place`, named spare, may be used again."""
        with self._lock:
            self._free.append(place)
            while sum(p.size for p in self._free) > self._spare:
                self.path(self._free.pop(0).stem, "spare").unlink(missing_ok=True)

    def path(self, stem: str, stage: str) -> Path:
        return self._folder / f"{stem}.{stage}"

    def _new(self, stem: str, size: int) -> Place:
        with self.path(stem, "writing").open("x+b") as file:
            # Reserved, or a full device would end the process at the first write to its pages.
            os.posix_fallocate(file.fileno(), 0, size)
            mapped = mmap.mmap(file.fileno(), size)
        return Place(stem, size, np.frombuffer(mapped, dtype=np.uint8))


class Views:
    """Files of other holders, mapped for reading; the least recently used are let go."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._known: OrderedDict[tuple[int, int, int], Bytes] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: Path) -> Bytes:
        """All of the file; raises OSError or ValueError (an empty file)."""
        with path.open("rb") as file, self._lock:
            status = os.fstat(file.fileno())
            # A mapped file keeps its number, so the number names the same file for as long.
            name = (status.st_dev, status.st_ino, status.st_size)
            if name not in self._known:
                # Private: what a reader does to its view stays with it.
                mapped = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_COPY)
                self._known[name] = np.frombuffer(mapped, dtype=np.uint8)
            self._known.move_to_end(name)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
            return self._known[name]
