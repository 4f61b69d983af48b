"""Where readers come to a holder: a TCP port on which leases are claimed and given back.

The keys and values themselves go by the lane. One thread serves one reader, for a read at most.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from contextlib import closing, suppress
from typing import Any, TypeVar

import msgspec

from ebbtide import wire
from ebbtide.transfer.desk import Claim, Desk, Done, Lent, NotLent, Settled
from ebbtide.transfer.lanes import Lane

M = TypeVar("M")
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 64 << 20
"""Of one message: checksums are 8 bytes for each 256 KiB of keys and values."""
_READERS = 64
_GREETING_SECONDS = 5.0
_TICK_SECONDS = 0.0001
"""Between two looks at whether a reader is done; meanwhile its read is helped along."""


class Counter:
    """Listens from construction to `close`; raises OSError if it cannot."""

    def __init__(self, *, host: str, desk: Desk, lane: Lane) -> None:
        self._desk, self._lane = desk, lane
        self._socket = socket.create_server((host, 0))
        self._places = threading.BoundedSemaphore(_READERS)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="kv-counter", daemon=True).start()

    def close(self) -> None:
        """Listen no more; whoever is reading finds that nothing is held."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            if not self._places.acquire(blocking=False):
                peer.close()
                continue
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            with closing(peer), suppress(OSError, EOFError, msgspec.DecodeError):
                peer.settimeout(_GREETING_SECONDS)
                self._answer(peer, receive(peer, Claim))
        finally:
            self._places.release()

    def _answer(self, peer: socket.socket, ask: Claim) -> None:
        found = self._desk.claim(ask)
        if isinstance(found, NotLent):
            send(peer, found)
            return
        opaque, whole = ask.ticket.opaque, False
        try:
            send(peer, Lent(self._lane.offer(found.place), found.size, found.sums))
            whole = self._wait(peer, ask) and receive(peer, Done).whole
        finally:  # whoever goes without a word has read nothing, and will not come again
            valid = self._desk.settle(opaque, whole=whole)
        send(peer, Settled(valid))

    def _wait(self, peer: socket.socket, ask: Claim) -> bool:
        """Help the read along until the reader speaks; whether it did in time."""
        until = time.monotonic() + ask.ticket.expires_in
        while not select.select([peer], [], [], _TICK_SECONDS)[0]:
            if time.monotonic() >= until or not self._desk.open(ask.ticket.opaque):
                return False
            self._lane.progress()
        return True


def send(peer: socket.socket, message: Any) -> None:
    """One message; raises OSError."""
    data = wire.encode(message)
    peer.sendall(_LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket, kind: type[M]) -> M:
    """The next message; raises OSError (also for a time-out), EOFError, msgspec.DecodeError."""
    [length] = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > _MOST_BYTES:
        raise EOFError(f"a message of {length} bytes")
    return wire.decode(_exactly(peer, length), kind)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = peer.recv(min(size - len(data), 1 << 16))
        if not more:
            raise EOFError("the other end has gone")
        data += more
    return bytes(data)
