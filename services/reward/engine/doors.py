"""Which addresses a scorer may call: a job names a server, and only the public ones are reached.

The address that was checked is the one that is called, so that a name which changes its mind in
between (DNS rebinding) gains nothing. No proxy, no redirect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

import httpx

from ebbtide.errors import Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Forbidden(Exception):
    """The name leads to an address that may not be called."""


def networks(text: str) -> tuple[Network, ...]:
    """From the administrator's setting; raises Refused where it is none."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"not a network: {error}", field="EBBTIDE_PRIVATE_NETWORKS") from None


def permitted(address: Address, allowed: Sequence[Network]) -> bool:
    """Whether `address` is public, or in an allowed network."""
    inner = _inner(address)
    if any(inner in network for network in allowed if network.version == inner.version):
        return True
    return inner.is_global and not inner.is_multicast


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


async def resolve(host: str, port: int) -> Sequence[str]:
    """The host's addresses, as the system has them. Raises httpx.ConnectError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except OSError as error:
        raise httpx.ConnectError(f"{host} has no address: {error.strerror}") from None
    return [str(entry[4][0]) for entry in found]


class Door(httpx.AsyncBaseTransport):
    """Calls the address that it has checked, under the name that was asked for."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        *,
        allowed: Sequence[Network],
        resolve: Resolve = resolve,
    ) -> None:
        self._inner = inner
        self._allowed = allowed
        self._resolve = resolve

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises Forbidden where any of the name's addresses may not be called."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = await self._resolve(host, port)
        for text in addresses:
            if not permitted(ipaddress.ip_address(text.partition("%")[0]), self._allowed):
                raise Forbidden(f"{host} is at {text}, which is not public")
        if not addresses:
            raise httpx.ConnectError(f"{host} has no address")
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=addresses[0])
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()
