"""Which transfer a process has: the one that the job asks for, or what is there."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

from ebbtide.errors import Permanent
from ebbtide.logs import Log
from ebbtide.ports import Clock, Transfer
from ebbtide.transfer.nixl import over_nixl
from ebbtide.transfer.shm import in_host

Way = Literal["shm", "nixl"]


def open_transfer(
    way: Way,
    *,
    name: str,
    clock: Clock,
    folder: str,
    host: str,
    log: Log,
    remote: Callable[..., Transfer] = over_nixl,
) -> tuple[Transfer, str]:
    """The transfer, and which it is; shared memory where NIXL is missing. Raises OSError.

    Whoever was given the other kind's ticket finds that it names no export, and computes.
    """
    if way == "nixl":
        try:
            return remote(name=name, clock=clock, host=host), "nixl"
        except (Permanent, OSError) as error:
            log.warning("no NIXL; keys and values stay on this host", why=str(error))
    return in_host(name=name, clock=clock, folder=folder), "shm"


def own_address(towards: str) -> str:
    """This host's address on the way to the server of the URL `towards`; nothing is sent."""
    first = urlsplit(towards.split(",", maxsplit=1)[0].strip())
    try:
        kind, *_, there = socket.getaddrinfo(
            first.hostname, first.port or 4222, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
