"""Durable streams and pull consumers in memory, as JetStream has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ebbtide import streams
from ebbtide.errors import Fenced
from ebbtide.ports import Clock, Delivery, FactMessage
from ebbtide.streams import StreamSpec
from ebbtide.testing.chaos import Chaos

_RETRY_SECONDS = 0.25


class FakeStream:
    """One stream with its durables; messages are numbered from 1."""

    def __init__(self, spec: StreamSpec, *, clock: Clock, chaos: Chaos) -> None:
        self.spec = spec
        self.messages: dict[int, FactMessage] = {}
        self.clock = clock
        self.chaos = chaos
        self.arrival = asyncio.Event()
        self._last = 0
        self._bytes = 0
        self._seen: dict[str, float] = {}
        self._durables: dict[str, Durable] = {}

    def takes(self, subject: str) -> bool:
        """Whether the stream collects `subject`."""
        return any(matches(pattern, subject) for pattern in self.spec.subjects)

    def store(self, fact: FactMessage) -> bool:
        """Keep `fact` unless it is a repetition; False if the stream is full."""
        now = self.clock.now()
        if self._seen.get(fact.dedup_id, -1.0) > now:
            return True
        if self._bytes + len(fact.data) > self.spec.max_bytes:
            return False
        self._bytes += len(fact.data)
        self._seen[fact.dedup_id] = now + self.spec.dedup_window
        self._last += 1
        self.messages[self._last] = fact
        self.wake()
        return True

    def drop(self, number: int) -> None:
        """Remove a message for good."""
        fact = self.messages.pop(number, None)
        self._bytes -= len(fact.data) if fact else 0

    def open(self, durable: str, subject: str, *, replaces: str = "") -> Durable:
        """The durable, made if need be; it takes over from those that it replaces."""
        line = [name for name in self._durables if replaces and name.startswith(replaces)]
        if any(name > durable for name in line):
            raise Fenced(f"{max(line)} has replaced {durable}")
        if durable not in self._durables:
            floor = max((self._durables[name].floor for name in line), default=0)
            self._durables[durable] = Durable(self, subject, floor=floor)
        for name in line:
            if name != durable:
                self._durables.pop(name).superseded = True
        self.wake()
        return self._durables[durable]

    def lose(self) -> None:
        """The storage is gone; holders notice when they ask again."""
        for durable in self._durables.values():
            durable.lost = True
        self.messages.clear()
        self.wake()

    def wake(self) -> None:
        """Let waiting consumers look again."""
        self.arrival.set()
        self.arrival = asyncio.Event()

    @property
    def last(self) -> int:
        """Number of the newest message."""
        return self._last


class Durable:
    """Delivery state of one durable consumer of `stream`."""

    def __init__(self, stream: FakeStream, subject: str, *, floor: int) -> None:
        self.stream = stream
        self.superseded = False
        self.lost = False
        self._subject = subject
        self._next = floor + 1
        self._pending: dict[int, float] = {}
        self._times: dict[int, int] = {}
        self._limits = streams.CONSUMERS[stream.spec.name]

    @property
    def floor(self) -> int:
        """The highest number with everything up to it acknowledged."""
        return min(self._pending, default=self._next) - 1

    def take(self, batch: int) -> list[FakeDelivery]:
        """What can be delivered now: overdue messages first, then new ones."""
        if self.lost:
            return []
        now = self.stream.clock.now()
        numbers = [n for n, at in sorted(self._pending.items()) if at <= now][:batch]
        room = self._limits.max_ack_pending - len(self._pending)
        numbers += self._fresh(min(batch - len(numbers), room))
        return _disturbed([self._deliver(n) for n in numbers], self.stream.chaos)

    def settle(self, number: int) -> None:
        """Acknowledge; on a bad network that gets lost."""
        if number not in self._pending or self.stream.chaos.lost():
            return
        del self._pending[number]
        if self.stream.spec.retention == "workqueue":
            self.stream.drop(number)
        self.stream.wake()

    def postpone(self, number: int, seconds: float) -> None:
        """Deliver again after `seconds`, not earlier."""
        if number in self._pending:
            self._pending[number] = self.stream.clock.now() + seconds
            self.stream.wake()

    def next_due(self) -> float | None:
        """When the earliest unacknowledged message comes again."""
        return min(self._pending.values(), default=None)

    def _fresh(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and self._next <= self.stream.last:
            fact = self.stream.messages.get(self._next)
            if fact is not None and matches(self._subject, fact.subject):
                found.append(self._next)
            self._next += 1
        return found

    def _deliver(self, number: int) -> FakeDelivery:
        self._pending[number] = self.stream.clock.now() + self._limits.ack_wait
        self._times[number] = self._times.get(number, 0) + 1
        return FakeDelivery(self, number, redelivered=self._times[number] > 1)


class FakeDelivery:
    """Implements `ebbtide.ports.Delivery`."""

    def __init__(self, durable: Durable, number: int, *, redelivered: bool) -> None:
        fact = durable.stream.messages[number]
        self.data = fact.data
        self.subject = fact.subject
        self.redelivered = redelivered
        self.settled = False
        self._durable = durable
        self._number = number

    async def ack(self) -> None:
        self.settled = True
        self._durable.settle(self._number)

    async def nak(self, delay: float = 0.0) -> None:
        self.settled = True
        self._durable.postpone(self._number, delay)

    async def in_progress(self) -> None:
        limits = streams.CONSUMERS[self._durable.stream.spec.name]
        self._durable.postpone(self._number, limits.ack_wait)


class FakeConsumer:
    """Implements `ebbtide.ports.Consumer`. `find` gives the stream, or None without a broker."""

    def __init__(
        self,
        held: Durable,
        *,
        durable: str,
        subject: str,
        replaces: str,
        find: Callable[[], FakeStream | None],
    ) -> None:
        self._name = durable
        self._subject = subject
        self._replaces = replaces
        self._find = find
        self._held = held
        self._given: list[FakeDelivery] = []

    async def fetch(self, batch: int, timeout: float) -> Sequence[Delivery]:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    taken = self._take(batch)
                    if taken:
                        return taken
                    await self._wait()
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.ack()

    async def trim(self) -> None:
        stream = self._find()
        if stream is None:
            return
        for number in [n for n in stream.messages if n <= self._held.floor]:
            if matches(self._subject, stream.messages[number].subject):
                stream.drop(number)

    async def close(self) -> None:
        for delivery in self._given:
            if not delivery.settled:
                await delivery.nak()
        self._given.clear()

    def _take(self, batch: int) -> list[FakeDelivery]:
        stream = self._find()
        if stream is None:
            return []
        if self._held.superseded:
            raise Fenced(f"{self._name} was replaced by a later holder")
        if self._held.lost:
            self._held = stream.open(self._name, self._subject, replaces=self._replaces)
        taken = self._held.take(batch)
        self._given = [given for given in self._given if not given.settled] + taken
        return taken

    async def _wait(self) -> None:
        stream = self._find()
        if stream is None:
            await asyncio.sleep(_RETRY_SECONDS)
            return
        due = self._held.next_due()
        pause = None if due is None else max(due - stream.clock.now(), 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stream.arrival.wait()


def _disturbed(deliveries: list[FakeDelivery], chaos: Chaos) -> list[FakeDelivery]:
    repeated = [d for d in deliveries for _ in range(chaos.copies())]
    chaos.shuffle(repeated)
    return repeated


def matches(pattern: str, subject: str) -> bool:
    """Whether `subject` fits `pattern`, in which * is one token and > the rest."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(given) > index
        if index >= len(given) or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
