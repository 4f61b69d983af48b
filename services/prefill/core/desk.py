"""Requests for tickets: each answered once, each prompt computed once for all of them (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ebbtide.wire import Granted, KvKey, KvTicket, Refusal, TicketRequest
from services.prefill.core.messages import Answer, Compute, Drop, Effect, Export, Release
from services.prefill.core.shelf import Shelf

SHARE = 3
"""A request is answered within this part of the time for which its KV will be held."""


class Limits(msgspec.Struct, frozen=True):
    """`at_once`: prompts computed together; `waiting`: requests without an answer; `open`: exports.

    `keep`: bytes of computed KV that are kept. Times in seconds: `hold` of an export, `orphan`
    without a planner; a policy is tried as an actor tries it.
    """

    at_once: int = 32
    waiting: int = 4000
    open: int = 4096
    keep: int = 1 << 30
    hold: float = 30.0
    orphan: float = 600.0
    load_tries: int = 6
    load_pause: float = 1.0


class Request(msgspec.Struct):
    """Not answered yet. `until`: when whoever asked has given up."""

    ask: TicketRequest
    until: float


class Desk:
    """`do` takes the effects. Computing begins when `proceed` is called."""

    def __init__(self, *, limits: Limits, do: Callable[[Effect], None]) -> None:
        self._limits, self._do = limits, do
        self._shelf = Shelf(limits.keep)
        self._requests: dict[int, Request] = {}
        self._readers: dict[KvKey, list[int]] = {}
        self._queue: dict[KvKey, Request] = {}
        self._computing: set[KvKey] = set()
        self.computed = self.granted = self.granted_tokens = self.refused = 0
        self.exports = 0

    @property
    def computing(self) -> bool:
        """Whether a prompt is being computed."""
        return bool(self._computing)

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._requests)

    # --- requests -------------------------------------------------------------------------------

    def ask(self, number: int, ask: TicketRequest, now: float) -> None:
        """Take the request in: it is for the policy that is held, and its key is its prompt's."""
        assert number not in self._requests, "a number is one request's"
        if len(self._requests) >= self._limits.waiting or self.exports >= self._limits.open:
            self.refuse(number, "full", f"{len(self._requests)} wait, {self.exports} are held")
            return
        until = now + min(ask.seconds, self._limits.hold / SHARE)
        request = self._requests[number] = Request(ask, until)
        if self._shelf.use(ask.key):
            self._do(Export(number, ask.key, ask.reader))
            return
        self._readers.setdefault(ask.key, []).append(number)
        if ask.key not in self._computing:
            self._queue.setdefault(ask.key, request)

    def refuse(self, number: int, code: str, detail: str) -> None:
        """Answer that there is no ticket."""
        self._requests.pop(number, None)
        self.refused += 1
        self._do(Answer(number, Refusal(code, detail)))

    def expire(self, now: float) -> None:
        """Answer those who have given up; what nobody waits for is not begun."""
        late = [number for number, request in self._requests.items() if now >= request.until]
        for number in late:
            self._forget(number)
            self.refuse(number, "late", "it was not ready in time")

    def refuse_queued(self, code: str, detail: str) -> None:
        """Refuse whatever waits for a prompt that has not been begun."""
        for key in list(self._queue):
            self._refuse_all(key, code, detail)
        self._queue.clear()

    def _forget(self, number: int) -> None:
        key = self._requests[number].ask.key
        readers = self._readers.get(key, [])
        if number in readers:
            readers.remove(number)
        if not readers:
            self._readers.pop(key, None)
            self._queue.pop(key, None)

    def _refuse_all(self, key: KvKey, code: str, detail: str) -> None:
        for number in self._readers.pop(key, []):
            self.refuse(number, code, detail)

    # --- computing ------------------------------------------------------------------------------

    def proceed(self) -> None:
        """Begin what there is room for."""
        while self._queue and len(self._computing) < self._limits.at_once:
            key = next(iter(self._queue))
            ask = self._queue.pop(key).ask
            self._computing.add(key)
            self._do(Compute(ask.policy, key, ask.prompt, ask.fence.attempt, ask.step))

    def finished(self, key: KvKey, size: int) -> None:
        """Hand it to all that wait for it, and keep it for others."""
        self._computing.discard(key)
        self.computed += 1
        for number in self._readers.pop(key, []):
            self._do(Export(number, key, self._requests[number].ask.reader))
        self._drop(self._shelf.add(key, size))

    def failed(self, key: KvKey, why: str) -> None:
        """It cannot be computed."""
        self._computing.discard(key)
        self._refuse_all(key, "unknown", why)

    def exported(self, number: int, ticket: KvTicket | None) -> None:
        """Answer, unless the request has been answered meanwhile."""
        request = self._requests.get(number)
        if request is None:
            if ticket is not None:
                self._do(Release(ticket))
            return
        if ticket is None:
            self.refuse(number, "temporary", "it could not be exported")
            return
        del self._requests[number]
        self.exports += 1
        self.granted += 1
        self.granted_tokens += ticket.key.n_tokens
        self._do(Answer(number, Granted(ticket)))

    def still_open(self, exports: int) -> None:
        """So many exports may still be read."""
        self.exports = exports

    def clear(self) -> None:
        """Keep nothing: another policy comes. Exports stay until they are read or expire."""
        assert not self._computing
        self._drop(self._shelf.clear())

    def _drop(self, keys: Sequence[KvKey]) -> None:
        for key in keys:
            self._do(Drop(key))
