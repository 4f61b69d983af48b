"""Requests, lossy beats and durable facts over one connection.

Implements `ebbtide.ports.Bus`. A lost broker is tried again for ever; what is asked meanwhile
fails as Temporary, and beats are dropped. Streams come from `ebbtide.streams`; whoever may
(`manage`) makes them, and makes them again when the broker came back empty.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import api
from nats.js.client import JetStreamContext

from ebbtide import streams
from ebbtide.adapters.nats.consumer import NatsConsumer, Place, make_consumer
from ebbtide.adapters.nats.link import API_SECONDS, Link, translated
from ebbtide.errors import DeadlineExceeded, Refused, Temporary
from ebbtide.logs import Log
from ebbtide.ports import FactMessage, Handler

_BEATS_KEPT = 4096
_BEAT_BACKLOG_BYTES = 1 << 20
_NO_STREAM = "no stream takes it"


@asynccontextmanager
async def open_bus(
    url: str,
    *,
    user: str = "",
    password: str = "",
    name: str = "ebbtide",
    manage: bool = False,
    replicas: int = 1,
    deadline: float = 30.0,
    answer_seconds: float = 5.0,
    log: Log,
) -> AsyncIterator[NatsBus]:
    """A connection while open. `name` shows in the broker's monitoring.

    `manage`: make the streams, with `replicas` copies each (the planner has the right to).
    `answer_seconds`: how long a stream may take to acknowledge facts. Raises Temporary if no
    broker answers in `deadline` seconds, Refused if it denies the user.
    """
    link = Link(log=log)
    try:
        await link.connect(url, user=user, password=password, name=name, deadline=deadline)
        bus = NatsBus(link=link, manage=manage, replicas=replicas, patience=answer_seconds)
        await bus.start()
        yield bus
    finally:
        await link.client.close()


class NatsBus:
    """Made by `open_bus`."""

    def __init__(self, *, link: Link, manage: bool, replicas: int, patience: float) -> None:
        self._link = link
        self._nats = link.client
        self._js = JetStreamContext(link.client, timeout=API_SECONDS)
        self._manage = manage
        self._replicas = replicas
        self._patience = patience
        self._acks = link.client.new_inbox()
        self._tokens = itertools.count()
        self._unacked: dict[str, _Batch] = {}

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def start(self) -> None:
        """Listen for the streams' answers, and make the streams; once."""
        with translated("starting"):
            await self._nats.subscribe(f"{self._acks}.*", cb=self._on_ack)
            self._link.on_lost.add(self._give_up_batches)
            if self._manage:
                await self._make_streams()

    async def _make_streams(self) -> None:
        for spec in streams.STREAMS:
            try:
                await self._js.stream_info(spec.name)
            except nats.js.errors.NotFoundError:
                await self._js.add_stream(_stream_config(spec, self._replicas))

    # --- requests -------------------------------------------------------------------------------

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes:
        _check_size(data)
        self._link.require_open()
        if not self.connected:
            raise DeadlineExceeded(f"broker is lost; nothing asked on {subject}")
        try:
            with translated(f"asking on {subject}"):
                reply = await self._ask(subject, data, timeout)
        except DeadlineExceeded:
            raise
        except Temporary as error:
            raise DeadlineExceeded(str(error)) from None
        return reply.data

    async def _ask(self, subject: str, data: bytes, timeout: float) -> Msg:
        try:
            return await self._nats.request(subject, data, timeout=timeout)
        except nats.errors.NoRespondersError:
            raise DeadlineExceeded(f"nobody serves {subject}") from None
        except nats.errors.TimeoutError:
            raise DeadlineExceeded(f"no answer on {subject} in {timeout} s") from None

    @asynccontextmanager
    async def serve(self, subject: str, handler: Handler, at_once: int = 1) -> AsyncIterator[None]:
        inbox: asyncio.Queue[Msg] = asyncio.Queue()
        async with self._subscribed(subject, inbox), asyncio.TaskGroup() as group:
            name = f"serve {subject}"
            pumps = [group.create_task(_answer(inbox, handler), name=name) for _ in range(at_once)]
            yield
            for pump in pumps:
                pump.cancel()

    # --- beats ----------------------------------------------------------------------------------

    async def beat(self, subject: str, data: bytes) -> None:
        _check_size(data)
        if self.connected and self._nats.pending_data_size < _BEAT_BACKLOG_BYTES:
            with suppress(Temporary), translated("beating"):
                await self._nats.publish(subject, data)

    @asynccontextmanager
    async def beats(self, subject: str) -> AsyncIterator[AsyncIterator[bytes]]:
        inbox: asyncio.Queue[Msg] = asyncio.Queue(_BEATS_KEPT)
        async with self._subscribed(subject, inbox):
            yield _drawn(inbox)

    @asynccontextmanager
    async def _subscribed(self, subject: str, inbox: asyncio.Queue[Msg]) -> AsyncIterator[None]:
        """Put messages into `inbox` while open; drop them while it is full."""

        async def keep(message: Msg) -> None:
            with suppress(asyncio.QueueFull):
                inbox.put_nowait(message)

        with translated(f"subscribing to {subject}"):
            subscription = await self._nats.subscribe(subject, cb=keep)
        with suppress(Temporary):
            await self._link.flush()
        try:
            yield
        finally:
            await _unsubscribe(subscription)

    # --- facts ----------------------------------------------------------------------------------

    async def publish_fact(self, subject: str, data: bytes, dedup_id: str) -> None:
        await self.publish_facts([FactMessage(subject, data, dedup_id)])

    async def publish_facts(self, facts: Sequence[FactMessage]) -> None:
        for fact in facts:
            _check_size(fact.data)
        batch = await self._publish(facts)
        if batch.why == _NO_STREAM and self._manage:
            with translated("making streams"):
                await self._make_streams()
            batch = await self._publish(batch.left())
        if batch.left():
            raise Temporary(f"{len(batch.left())} of {len(facts)} facts not stored: {batch.why}")

    async def _publish(self, facts: Sequence[FactMessage]) -> _Batch:
        """Send all, then wait until each is answered or the time is up."""
        self._link.require_open()
        batch = _Batch({str(next(self._tokens)): fact for fact in facts})
        if not self.connected:
            batch.why = "broker is lost"
            return batch
        self._unacked |= dict.fromkeys(batch.waiting, batch)
        try:
            with translated("publishing facts"):
                for token, fact in list(batch.waiting.items()):
                    await self._send(token, fact)
            await batch.settled(self._patience)
        finally:
            for token in batch.waiting:
                self._unacked.pop(token, None)
        return batch

    async def _send(self, token: str, fact: FactMessage) -> None:
        await self._nats.publish(
            fact.subject,
            fact.data,
            reply=f"{self._acks}.{token}",
            headers={api.Header.MSG_ID.value: fact.dedup_id},
        )

    async def _on_ack(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        batch = self._unacked.pop(token, None)
        if batch is not None:
            batch.settle(token, refusal=_refusal(message))

    def _give_up_batches(self) -> None:
        for batch in set(self._unacked.values()):
            batch.give_up("broker was lost")

    # --- consumers ------------------------------------------------------------------------------

    async def consume(
        self, stream: str, durable: str, subject: str, replaces: str = ""
    ) -> NatsConsumer:
        place = Place(stream, durable, subject, replaces)
        await self._make_consumer(place)
        consumer = NatsConsumer(
            link=self._link,
            js=self._js,
            place=place,
            remake=lambda: self._make_consumer(place),
        )
        await consumer.listen()
        return consumer

    async def _make_consumer(self, place: Place) -> None:
        with translated(f"opening consumer {place.durable}"):
            if self._manage:
                await self._make_streams()
            await make_consumer(self._js, place)


class _Ack(msgspec.Struct):
    error: dict[str, object] | None = None


class _Batch:
    """Facts under way by token, and those that the stream refused."""

    def __init__(self, waiting: dict[str, FactMessage]) -> None:
        self.waiting = waiting
        self.why = "no answer in time"
        self._refused: list[FactMessage] = []
        self._done = asyncio.Event()

    def left(self) -> list[FactMessage]:
        """What the stream is not known to have."""
        return [*self._refused, *self.waiting.values()]

    def settle(self, token: str, *, refusal: str) -> None:
        fact = self.waiting.pop(token)
        if refusal:
            self._refused.append(fact)
            self.why = refusal
        if not self.waiting:
            self._done.set()

    def give_up(self, why: str) -> None:
        self.why = why
        self._done.set()

    async def settled(self, seconds: float) -> None:
        if self.waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._done.wait()


def _refusal(message: Msg) -> str:
    if message.headers and message.headers.get(api.Header.STATUS) == "503":
        return _NO_STREAM
    error = msgspec.json.decode(message.data, type=_Ack).error
    return str(error.get("description", error)) if error else ""


async def _answer(inbox: asyncio.Queue[Msg], handler: Handler) -> None:
    while True:
        message = await inbox.get()
        reply = await handler(message.data)
        _check_size(reply)
        if message.reply:
            with suppress(Temporary), translated("replying"):
                await message.respond(reply)


async def _drawn(inbox: asyncio.Queue[Msg]) -> AsyncIterator[bytes]:
    while True:
        yield (await inbox.get()).data


async def _unsubscribe(subscription: Subscription) -> None:
    with suppress(nats.errors.Error):
        await subscription.unsubscribe()


def _stream_config(spec: streams.StreamSpec, replicas: int) -> api.StreamConfig:
    return api.StreamConfig(
        name=spec.name,
        subjects=list(spec.subjects),
        retention=api.RetentionPolicy(spec.retention),
        discard=api.DiscardPolicy.NEW if spec.discard_new else api.DiscardPolicy.OLD,
        max_bytes=spec.max_bytes,
        max_age=spec.max_age,
        duplicate_window=spec.dedup_window,
        max_msg_size=spec.max_message_bytes,
        num_replicas=replicas,
        storage=api.StorageType.FILE,
    )


def _check_size(data: bytes) -> None:
    if len(data) > streams.MAX_MESSAGE_BYTES:
        raise Refused(f"message of {len(data)} bytes; send large data as a blob reference")
