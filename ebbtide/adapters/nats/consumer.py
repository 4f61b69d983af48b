"""A durable pull consumer: keeps one pull request open and survives a broker that came back empty.

nats-py's own `fetch` awaits a task per message and knows nothing of lost consumers; this one
collects what arrives in a queue and asks again only when its request has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import api
from nats.js.client import JetStreamContext

from ebbtide import streams
from ebbtide.adapters.nats.link import Link, translated
from ebbtide.errors import Fenced, Temporary
from ebbtide.ports import Delivery

_PULL_SECONDS = 5.0
_SPARE_SECONDS = 1.0
_RETRY_SECONDS = 0.1
_PLAIN_ENDS = ("404", "408")
"""No messages, and request expired: how a healthy pull request ends."""
_HEARTBEAT = "100"


class Place(msgspec.Struct, frozen=True):
    """Where a consumer stands; `replaces` is the prefix of its line of durables, or empty."""

    stream: str
    durable: str
    subject: str
    replaces: str


class NatsDelivery:
    """Implements `ebbtide.ports.Delivery`."""

    def __init__(self, message: Msg, link: Link, held: dict[str, NatsDelivery]) -> None:
        self.data = message.data
        self.subject = message.subject
        self.redelivered = _times_delivered(message.reply) > 1
        self._reply = message.reply
        self._link = link
        self._held = held
        held[message.reply] = self

    async def ack(self) -> None:
        self._held.pop(self._reply, None)
        await self._answer(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        self._held.pop(self._reply, None)
        await self._answer(b'-NAK {"delay": %d}' % int(delay * 1e9) if delay else b"-NAK")

    async def in_progress(self) -> None:
        await self._answer(b"+WPI")

    async def _answer(self, word: bytes) -> None:
        with suppress(Temporary), translated("answering a delivery"):
            await self._link.client.publish(self._reply, word)


class NatsConsumer:
    """Implements `ebbtide.ports.Consumer`; made by `NatsBus.consume`.

    `remake` makes what is missing of stream and consumer.
    """

    def __init__(
        self,
        *,
        link: Link,
        js: JetStreamContext,
        place: Place,
        remake: Callable[[], Awaitable[None]],
    ) -> None:
        self._link = link
        self._js = js
        self._place = place
        self._remake = remake
        self._inbox = link.client.new_inbox()
        self._subscription: Subscription | None = None
        self._arrived: deque[Msg] = deque()
        self._held: dict[str, NatsDelivery] = {}
        self._news = asyncio.Event()
        self._made_in = link.generation
        self._missing = False
        self._asked = 0
        self._asked_until = 0.0
        self._rest_until = 0.0

    async def listen(self) -> None:
        """Subscribe to the inbox that pulled messages come to; once, before the first fetch."""
        with translated("subscribing"):
            self._subscription = await self._link.client.subscribe(self._inbox, cb=self._keep)
        self._link.on_found.add(self._news.set)

    async def fetch(self, batch: int, timeout: float) -> Sequence[Delivery]:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._arrived:
                    await self._ask(batch)
                    await self._wait()
        count = min(batch, len(self._arrived))
        messages = [self._arrived.popleft() for _ in range(count)]
        return [NatsDelivery(message, self._link, self._held) for message in messages]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.ack()

    async def trim(self) -> None:
        with suppress(nats.js.errors.NotFoundError), translated("trimming"):
            info = await self._js.consumer_info(self._place.stream, self._place.durable)
            floor = info.ack_floor.stream_seq if info.ack_floor else 0
            if floor:
                await self._js.purge_stream(
                    self._place.stream, seq=floor + 1, subject=self._place.subject
                )

    async def close(self) -> None:
        if self._subscription is None:
            return
        self._link.on_found.discard(self._news.set)
        with suppress(Temporary), translated("closing a consumer"):
            await self._subscription.unsubscribe()
            self._subscription = None
        for message in self._arrived:
            NatsDelivery(message, self._link, self._held)
        for delivery in list(self._held.values()):
            await delivery.nak()
        with suppress(Temporary):
            await self._link.flush()

    async def _ask(self, batch: int) -> None:
        """See that a pull request is open, on a consumer that exists."""
        self._link.require_open()
        now = time.monotonic()
        if not self._link.connected or now < self._rest_until:
            return
        stale = self._made_in != self._link.generation
        if self._asked > 0 and now < self._asked_until and not stale:
            return
        overdue = self._asked > 0 and now >= self._asked_until
        try:
            if stale or overdue or self._missing:
                await self._make_again()
            await self._pull(batch)
        except Temporary:
            self._rest_until = time.monotonic() + _RETRY_SECONDS

    async def _make_again(self) -> None:
        generation = self._link.generation
        await self._remake()
        self._made_in = generation
        self._missing = False
        self._asked = 0

    async def _pull(self, batch: int) -> None:
        request = {"batch": batch, "expires": int(_PULL_SECONDS * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._place.stream}.{self._place.durable}"
        with translated("pulling"):
            await self._link.client.publish(
                subject, msgspec.json.encode(request), reply=self._inbox
            )
        self._asked = batch
        self._asked_until = time.monotonic() + _PULL_SECONDS + _SPARE_SECONDS

    async def _wait(self) -> None:
        if self._arrived:
            return
        pause = _RETRY_SECONDS
        if self._asked > 0 and self._link.connected:
            pause = max(self._asked_until - time.monotonic(), _RETRY_SECONDS)
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._news.wait()

    async def _keep(self, message: Msg) -> None:
        status = (message.headers or {}).get(api.Header.STATUS)
        if status is None:
            self._arrived.append(message)
            self._asked -= 1
        elif status != _HEARTBEAT:
            self._asked = 0
            self._missing = status not in _PLAIN_ENDS
            self._rest_until = time.monotonic() + (_RETRY_SECONDS if self._missing else 0.0)
        self._news.set()


async def make_consumer(js: JetStreamContext, place: Place) -> None:
    """Make the durable of `place` if it is missing, and end the line that it replaces.

    Raises Fenced if a later one of the line exists, NotFoundError if the stream is missing.
    """
    line = await _line(js, place) if place.replaces else {}
    later = max(line, default="")
    if later > place.durable:
        raise Fenced(f"{later} has replaced {place.durable}")
    if place.durable not in line and not await _exists(js, place):
        await js.add_consumer(place.stream, _config(place, start=max(line.values(), default=0) + 1))
    for name in line:
        if name != place.durable:
            with suppress(nats.js.errors.NotFoundError):
                await js.delete_consumer(place.stream, name)


async def _line(js: JetStreamContext, place: Place) -> dict[str, int]:
    """The durables whose names begin with `place.replaces`: the last number all acknowledged."""
    found: dict[str, int] = {}
    offset = 0
    while True:
        page = await js.consumers_info(place.stream, offset=offset)
        found |= {info.name: _floor(info) for info in _of_line(page, place.replaces)}
        offset += len(page)
        if not page:
            return found


def _of_line(page: Iterable[api.ConsumerInfo], prefix: str) -> list[api.ConsumerInfo]:
    return [info for info in page if info.name.startswith(prefix)]


def _floor(info: api.ConsumerInfo) -> int:
    return (info.ack_floor.stream_seq or 0) if info.ack_floor else 0


async def _exists(js: JetStreamContext, place: Place) -> bool:
    try:
        await js.consumer_info(place.stream, place.durable)
    except nats.js.errors.NotFoundError:
        return False
    return True


def _config(place: Place, start: int) -> api.ConsumerConfig:
    limits = streams.CONSUMERS[place.stream]
    by_start = start > 1
    return api.ConsumerConfig(
        name=place.durable,
        durable_name=place.durable,
        filter_subject=place.subject,
        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE if by_start else api.DeliverPolicy.ALL,
        opt_start_seq=start if by_start else None,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=limits.ack_wait,
        max_ack_pending=limits.max_ack_pending,
        max_deliver=-1,
        inactive_threshold=limits.unused,
    )


def _times_delivered(reply: str) -> int:
    """From an acknowledgement subject, $JS.ACK.[domain.account.]stream.consumer.times...."""
    fields = reply.split(".")
    return int(fields[4] if len(fields) <= 9 else fields[6])
