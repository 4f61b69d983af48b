"""Whether NIXL works on this machine: it is tried, from one agent to another."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

import numpy as np

from ebbtide.errors import Temporary
from ebbtide.transfer.nixl import NixlLane

_BYTES = 8 << 20
_SECONDS = 10.0


@dataclass(frozen=True)
class Trial:
    """`rate` in bytes per second, of a read that is not the first. `transports`: UCX_TLS."""

    rate: float
    transports: str


def loopback() -> Trial:
    """Read what another agent of this process offers; raises Permanent or Temporary."""
    holder, reader = NixlLane("doctor-holder"), NixlLane("doctor-reader")
    source, target = holder.open(_BYTES), reader.open(_BYTES)
    source.data[:] = np.arange(_BYTES, dtype=np.uint64).astype(np.uint8)
    done = threading.Event()
    helper = threading.Thread(target=_help, args=(holder, done), daemon=True)
    helper.start()
    try:
        offer = holder.offer(source)
        reader.read(offer, target, _BYTES, _SECONDS, _unheard)
        target.data[:] = 0
        began = time.perf_counter()
        reader.read(offer, target, _BYTES, _SECONDS, _unheard)
        seconds = time.perf_counter() - began
    finally:
        done.set()
        helper.join()
    if not np.array_equal(source.data, target.data):
        raise Temporary("NIXL read other bytes than were there")
    return Trial(_BYTES / seconds, os.environ.get("UCX_TLS", "all"))


def _unheard(start: int, stop: int) -> None:
    """Pieces are of no interest."""


def _help(holder: NixlLane, done: threading.Event) -> None:
    while not done.wait(0.0005):
        holder.progress()
