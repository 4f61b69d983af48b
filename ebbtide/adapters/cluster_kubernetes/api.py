"""Requests to the API server: the official client's configuration and connection, raw bodies.

Its models are left aside: a typical pod as one takes 57 KB, and every field that a newer server
adds would be a fault. Bodies are decoded straight into the few fields that are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from ebbtide.adapters.cluster_kubernetes.answers import error_of, read_status
from ebbtide.errors import Permanent, Temporary, Throttled

MERGE = "application/merge-patch+json"
JSON = "application/json"
REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
TRIES = 4
"""Of a request that may be repeated."""
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE = 10.0
_LOST = (aiohttp.ClientError, TimeoutError, OSError)
_SAFE = frozenset({"GET"})


class Api:
    """One API server. `manager`: the field manager that its writes are recorded under."""

    def __init__(self, *, connection: client.ApiClient, manager: str) -> None:
        self._connection = connection
        self._manager = manager

    async def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> bytes:
        """The answer's body; raises what `answers.error_of` says, Temporary when there is none.

        Reads are repeated, and so is every request that the server put off (429): it did nothing.
        """
        url = self._url(path, method, query)
        for left in reversed(range(TRIES)):
            try:
                return await self._once(method, url, what, body, content_type)
            except Temporary as error:
                put_off = isinstance(error, Throttled)
                if not left or not (put_off or method in _SAFE):
                    raise
                await asyncio.sleep(_pause(error, TRIES - left))
        raise AssertionError("the last try raises or returns")

    async def _once(self, method: str, url: str, what: str, body: Any, content_type: str) -> bytes:
        try:
            response = await self._send(method, url, body, content_type, REQUEST_SECONDS)
            try:
                data: bytes = await response.read()
            finally:
                response.release()
        except _LOST as error:
            raise Temporary(f"{what}: the API server does not answer: {error!r}") from error
        _check(response, data, what)
        return data

    @asynccontextmanager
    async def stream(
        self, path: str, *, what: str, query: Mapping[str, Any], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Lines of an answer that goes on; Temporary once nothing came for `silence` seconds."""
        url = self._url(path, "GET", query)
        try:
            response = await self._send("GET", url, None, JSON, None, silence=silence)
        except _LOST as error:
            raise Temporary(f"{what}: the API server does not answer: {error!r}") from error
        try:
            if response.status >= 400:
                _check(response, await response.read(), what)
            yield _lines(response, what)
        finally:
            response.close()  # half an answer cannot be used again

    async def _send(
        self,
        method: str,
        url: str,
        body: Any,
        content_type: str,
        total: float | None,
        *,
        silence: float | None = None,
    ) -> aiohttp.ClientResponse:
        headers = {"Content-Type": content_type, "Accept": JSON}
        _, full, headers, _, _ = await self._connection.param_serialize(
            method, url, header_params=headers, auth_settings=["BearerToken"]
        )
        limits = aiohttp.ClientTimeout(
            total=total, sock_connect=CONNECT_SECONDS, sock_read=silence or total
        )
        answer = await self._connection.call_api(
            method, full, headers, body, _request_timeout=limits
        )
        response: aiohttp.ClientResponse = answer.response
        return response

    def _url(self, path: str, method: str, query: Mapping[str, Any] | None) -> str:
        given = dict(query or {})
        if method in ("POST", "PATCH"):
            given["fieldManager"] = self._manager
        return f"{path}?{urlencode(given)}" if given else path


def _check(response: aiohttp.ClientResponse, data: bytes, what: str) -> None:
    if response.status < 400:
        return
    status = read_status(response.status, data, response.headers.get("Retry-After", ""))
    error = error_of(status, what)
    if response.status == 429 and isinstance(error, Temporary):
        raise Throttled(str(error), delay=error.delay)
    raise error


def _pause(error: Temporary, tries: int) -> float:
    wanted = error.delay if isinstance(error, Throttled) else _PAUSE_SECONDS * 3.0**tries
    return min(_LONGEST_PAUSE, wanted)


async def _lines(response: aiohttp.ClientResponse, what: str) -> AsyncIterator[bytes]:
    """Whole lines, however long: a watch tells one object a line."""
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
    except _LOST as error:
        raise Temporary(f"{what}: the stream broke off: {error!r}") from error
    if rest:
        yield rest


@asynccontextmanager
async def open_api(*, manager: str, kubeconfig: str = "") -> AsyncIterator[Api]:
    """Connect by `kubeconfig`, else as the pod's service account, else as kubectl would.

    Raises Permanent where none of them says how.
    """
    settings = client.Configuration()
    try:
        await _configure(settings, kubeconfig)
    except (config.ConfigException, OSError, ValueError, TypeError) as error:
        raise Permanent(f"no way to the API server: {error}") from error
    settings.proxy = settings.proxy or proxy_for(settings.host) or None
    # Else every request reads the environment, and looks for a netrc file.
    settings.client_session_kwargs = {"trust_env": False}
    async with client.ApiClient(settings) as connection:
        connection.user_agent = manager
        yield Api(connection=connection, manager=manager)


def proxy_for(host: str) -> str:
    """Of the environment, for the API server at this URL; empty where it is reached directly."""
    place = urlsplit(host)
    if proxy_bypass(place.hostname or ""):
        return ""
    return getproxies().get(place.scheme, "")


async def _configure(settings: client.Configuration, kubeconfig: str) -> None:
    if not kubeconfig:
        with suppress(config.ConfigException):  # not inside a pod
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            return
    await config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=kubeconfig or None, client_configuration=settings, persist_config=False
    )
