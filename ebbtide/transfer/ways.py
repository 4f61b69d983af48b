"""Which transfer a process has: the one that the job asks for, or what is there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from ebbtide.errors import Permanent
from ebbtide.logs import Log
from ebbtide.ports import Clock, Transfer
from ebbtide.transfer.nixl import over_nixl
from ebbtide.transfer.shm import in_host

Way = Literal["shm", "nixl"]
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every container."""


def chosen(asked: Way | None, *, engine: str, environ: Mapping[str, str]) -> Way:
    """What the job asks for, or else what takes it there. Pods have a /dev/shm each, so only NIXL gets from one to another.

    It is opened for nothing where the engine hands no keys and values over.
    """
    if asked is not None:
        return asked
    return "nixl" if _IN_A_POD in environ and engine == "torch" else "shm"


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
