"""How bytes get from one process's memory into another's, whatever carries them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ebbtide.errors import Temporary
from ebbtide.transfer.frames import Bytes

_STEP = 1 << 20
Arrived = Callable[[int, int], None]
"""Bytes from the first offset to before the second are there."""


class Unreadable(Temporary):
    """The bytes did not come. `idle`: nothing will be written into the reader's memory any more."""

    def __init__(self, detail: str, *, late: bool = False, idle: bool = True) -> None:
        super().__init__(detail)
        self.late, self.idle = late, idle


@dataclass(eq=False)
class Place:
    """Memory that a lane knows; `handle` is the lane's own."""

    data: Bytes
    handle: object


class Lane(Protocol):
    """One process's end; all of it may be called from any thread."""

    def open(self, size: int) -> Place:
        """Memory of `size` bytes that others may be offered; raises Temporary."""
        ...

    def drop(self, place: Place) -> None:
        """It is offered to nobody any more."""
        ...

    def offer(self, place: Place) -> bytes:
        """What another process needs to read `place`."""
        ...

    def read(self, offer: bytes, into: Place, size: int, seconds: float, arrived: Arrived) -> None:
        """Copy the first `size` bytes of what is offered within `seconds`; raises Unreadable.

        `arrived` hears of each piece in order, while caches hold it and others are under way.
        """
        ...

    def progress(self) -> None:
        """Let what others read from here go on; called often while somebody does."""
        ...

    def close(self) -> None:
        """Offer nothing any more."""
        ...


class Pool:
    """Places of one lane, used again and again: to make one known is slow.

    `spare` bytes are kept while nothing is held.
    """

    def __init__(self, lane: Lane, *, spare: int) -> None:
        self._lane, self._spare = lane, spare
        self._free: list[Place] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> Place:
        """A place of at least `size` bytes; raises Temporary."""
        with self._lock:
            fitting = [place for place in self._free if len(place.data) >= size]
            if fitting:
                place = min(fitting, key=lambda p: len(p.data))
                self._free.remove(place)
                return place
        return self._lane.open(max(1, -(-size // _STEP)) * _STEP)

    def give_back(self, place: Place) -> None:
        """Nobody writes to it or reads from it any more."""
        with self._lock:
            self._free.append(place)
            surplus = []
            while sum(len(p.data) for p in self._free) > self._spare:
                surplus.append(self._free.pop(0))
        for each in surplus:
            self._lane.drop(each)
