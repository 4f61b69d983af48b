"""One connection to the broker: made once, found again for ever, its errors put into our words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from ebbtide import rights
from ebbtide.errors import Permanent, Refused, Temporary
from ebbtide.logs import Log

API_SECONDS = 5.0
_RECONNECT_SECONDS = 0.25
_CONNECT_SECONDS = 2


class Link:
    """The connection and what is known of it.

    `generation` counts how often it was found again. Each of `on_found` and `on_lost` is called
    when that happens.
    """

    def __init__(self, *, log: Log) -> None:
        self.client = Client()
        self.generation = 0
        self.on_found: set[Callable[[], None]] = set()
        self.on_lost: set[Callable[[], None]] = set()
        self._log = log
        self._denied: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def connected(self) -> bool:
        """Whether messages go out now."""
        return self.client.is_connected

    def require_open(self) -> None:
        """Raise Permanent once the broker has turned us away (a changed password)."""
        if self.client.is_closed:
            raise Permanent("the connection to the broker is closed")
        if self._denied.done() and not self.connected:
            raise Permanent(f"broker denies us now: {self._denied.result()}")

    async def connect(
        self, url: str, *, user: str, password: str, name: str, deadline: float
    ) -> None:
        """Connect; raises Refused for a denied user or bad URL, Temporary at the deadline."""
        work = asyncio.ensure_future(
            self.client.connect(
                url.split(","),
                user=user or None,
                password=password or None,
                name=name,
                inbox_prefix=rights.inbox(user),
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_SECONDS,  # type: ignore[arg-type] # any number does
                connect_timeout=_CONNECT_SECONDS,
                flush_timeout=API_SECONDS,
                error_cb=self._on_error,
                disconnected_cb=self._on_lost,
                reconnected_cb=self._on_found,
            )
        )
        first: set[asyncio.Future[object]] = {work, self._denied}  # type: ignore[arg-type]
        await asyncio.wait(first, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        self._judge(work, url, user, deadline)

    async def flush(self) -> None:
        """Wait until the broker has seen what was sent; at once if it is lost.

        Two round trips: nats-py writes a ping past what still waits in its buffer, so only the
        second one follows everything.
        """
        with translated("flushing"):
            for _ in range(2):
                if self.connected:
                    await self.client.flush(timeout=int(API_SECONDS))

    def _judge(self, work: asyncio.Future[None], url: str, user: str, deadline: float) -> None:
        if self._denied.done():
            raise Refused(f"broker denies user {user!r}: {self._denied.result()}")
        if work.cancelled():
            raise Temporary(f"no broker answers at {url} in {deadline} s")
        error = work.exception()
        if error is not None:
            raise Refused(f"cannot connect to {url}: {error}")

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if "authorization violation" in text.lower() and not self._denied.done():
            self._denied.set_result(text)
        elif "permissions violation" in text.lower():
            self._log.error("broker denied", why=text)
        elif isinstance(error, nats.errors.SlowConsumerError):
            self._log.warning("messages dropped", subject=error.subject)

    async def _on_lost(self) -> None:
        for call in self.on_lost:
            call()
        if not self.client.is_closed:
            self._log.warning("broker lost")

    async def _on_found(self) -> None:
        self.generation += 1
        for call in self.on_found:
            call()
        self._log.info("broker found again")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Broker errors as Temporary; a connection that the broker closed for good as Permanent."""
    try:
        yield
    except nats.errors.ConnectionClosedError:
        raise Permanent(f"broker closed the connection for good while {doing}") from None
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
        raise Temporary(f"broker failed while {doing}: {error or type(error).__name__}") from None
