"""The lane of NIXL: one-sided reads by UCX, over shared memory, TCP or RDMA as the machines allow.

UCX_TLS and UCX_NET_DEVICES in the environment choose among them; see docs/engines.md.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from ebbtide import wire
from ebbtide.errors import Permanent, Temporary
from ebbtide.ports import Clock
from ebbtide.transfer.lanes import Arrived, Place, Unreadable
from ebbtide.transfer.remote import RemoteTransfer
from ebbtide.wire import Wire

PACKAGES = ("nixl_cu13", "nixl_cu12")
"""The wheels that hold NIXL itself, by version of CUDA; either works without a GPU."""
_BACKEND = "UCX"
_TICK_SECONDS = 0.0001
_PIECE, _WINDOW = 1 << 20, 4
"""A read is split into pieces of so many bytes, of which so many are under way."""


class _Offer(Wire, frozen=True):
    """`metadata`: the agent's connection and the keys of this one place, as NIXL makes it."""

    metadata: bytes
    address: int
    size: int


def installed() -> str:
    """The package that is installed; or empty."""
    return next((name for name in PACKAGES if find_spec(name) is not None), "")


class NixlLane:
    """One NIXL agent. `name` must be no other agent's, nor of an earlier start.

    NIXL's own progress thread is not used: it takes a whole core, busy or not. The holder helps a
    read along while one is under way, and the reader by looking at it. Raises Permanent where NIXL
    is not installed or does not start.
    """

    def __init__(self, name: str) -> None:
        os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")  # its lines are not ours, nor JSON
        try:
            self._agent = _agent(name)
        except Exception as error:
            raise Permanent(f"NIXL does not start: {error!r}") from error
        self._lock = threading.Lock()

    def open(self, size: int) -> Place:
        data = np.zeros(size, dtype=np.uint8)  # so that every page is there when it is registered
        region = [(data.ctypes.data, size, 0, "")]
        try:
            return Place(data, self._agent.register_memory(region, "DRAM", [_BACKEND]))
        except Exception as error:
            raise Temporary(f"NIXL does not take {size} bytes of memory: {error!r}") from error

    def drop(self, place: Place) -> None:
        with suppress(Exception):  # it is gone either way
            self._agent.deregister_memory(place.handle, [_BACKEND])

    def offer(self, place: Place) -> bytes:
        made = self._agent.get_partial_agent_metadata(place.handle, True, [_BACKEND])
        return wire.encode(_Offer(made, place.data.ctypes.data, len(place.data)))

    def read(self, offer: bytes, into: Place, size: int, seconds: float, arrived: Arrived) -> None:
        until = time.monotonic() + seconds
        try:
            told = wire.decode(offer, _Offer)
        except msgspec.DecodeError as error:
            raise Unreadable(f"the offer is not NIXL's: {error}") from None
        if size > told.size:
            raise Unreadable(f"{size} bytes are wanted, {told.size} are offered")
        under_way: deque[tuple[Any, int, int]] = deque()
        try:
            other = self._met(told)
            for start in range(0, size, _PIECE):
                stop = min(start + _PIECE, size)
                under_way.append((self._posted(other, told, into, start, stop), start, stop))
                if len(under_way) == _WINDOW:
                    self._next(under_way, until, arrived)
            while under_way:
                self._next(under_way, until, arrived)
        except Exception as error:  # a peer that died comes as one of many kinds
            stuck = [handle for handle, *_ in under_way if not _released(handle)]
            self._forget(told)
            late = isinstance(error, TimeoutError)
            words = "the read took too long" if late else f"NIXL does not read: {error!r}"
            raise Unreadable(words, late=late, idle=not stuck) from error

    def progress(self) -> None:
        with suppress(Exception):  # a reader that has gone is the reader's own loss
            self._agent.get_new_notifs([_BACKEND])

    def close(self) -> None:
        """The agent goes when the last reading thread has let go of it."""
        del self._agent

    def _met(self, offer: _Offer) -> str:
        """The other agent's name, once the keys of its place are known here."""
        with self._lock:
            name: bytes = self._agent.add_remote_agent(offer.metadata)
        return name.decode()

    def _posted(self, other: str, offer: _Offer, into: Place, start: int, stop: int) -> Any:
        agent, here = self._agent, into.data.ctypes.data
        mine = agent.get_xfer_descs([(here + start, stop - start, 0)], "DRAM")
        theirs = agent.get_xfer_descs([(offer.address + start, stop - start, 0)], "DRAM")
        handle = agent.initialize_xfer("READ", mine, theirs, other, b"", [_BACKEND])
        agent.transfer(handle)
        return handle

    def _next(self, under_way: deque[tuple[Any, int, int]], until: float, arrived: Arrived) -> None:
        """Wait for the oldest piece; raises TimeoutError, or what NIXL raises."""
        handle, start, stop = under_way[0]
        while (state := self._agent.check_xfer_state(handle)) == "PROC":
            if time.monotonic() >= until:
                raise TimeoutError
            time.sleep(_TICK_SECONDS)
        if state != "DONE":
            raise ConnectionError("the read failed")
        under_way.popleft()
        handle.release()
        arrived(start, stop)

    def _forget(self, offer: _Offer) -> None:
        """A connection that failed is made anew."""
        with suppress(Exception):
            self._agent.remove_remote_agent(self._met(offer))


def _released(handle: Any) -> bool:
    try:
        handle.release()
    except Exception:  # noqa: BLE001 - it goes on; the handle is NIXL's to end
        return False
    return True


def over_nixl(*, name: str, clock: Clock, host: str) -> RemoteTransfer:
    """A transfer of a process that starts now; raises OSError or Permanent."""
    epoch = int(clock.wall() * 1e6)
    lane = NixlLane(f"{name}.{epoch}")
    return RemoteTransfer(name=name, epoch=epoch, clock=clock, lane=lane, host=host)


def _agent(name: str) -> Any:
    found = installed()
    if not found:
        raise ModuleNotFoundError(f"none of {', '.join(PACKAGES)} is installed")
    api = import_module(f"{found}._api")
    how = api.nixl_agent_config(
        enable_prog_thread=False,
        backends=[_BACKEND],
        sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
    )
    agent = api.nixl_agent(name, how)
    if _BACKEND not in agent.backends:
        raise RuntimeError(f"NIXL has no {_BACKEND} here")
    return agent
