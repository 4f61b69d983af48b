"""The prefill service's machine on a bench."""

from __future__ import annotations

from typing import TypeVar

from ebbtide.kv import kv_key
from ebbtide.wire import (
    EngineStats,
    Fence,
    Granted,
    KvKey,
    KvTicket,
    LoadPolicy,
    PolicyRef,
    PrefillBeat,
    Ref,
    Refusal,
    TicketReply,
    TicketRequest,
    pack_ints,
)
from services.prefill.core.desk import Limits
from services.prefill.core.messages import (
    Answer,
    Asked,
    Commanded,
    Compute,
    Computed,
    Effect,
    Event,
    Export,
    Exported,
    Load,
    PolicyLoaded,
    Reply,
    Tick,
)
from services.prefill.core.service import Service

E = TypeVar("E", bound=Effect)
POLICY, OTHER = (PolicyRef(n, 1, f"policy {n}") for n in range(2))
OLDER, FENCE, NEWER = Fence(1, 1), Fence(1, 2), Fence(1, 3)
LAYOUT, SIZE = "l", 100
LIMITS = Limits(at_once=2, waiting=6, keep=3 * SIZE, hold=30.0, orphan=600.0)


def prompt(n: int = 0) -> bytes:
    return pack_ints([5, 6 + n, 7])


def key(n: int = 0, policy: PolicyRef = POLICY) -> KvKey:
    return kv_key(policy, prompt(n), 2, LAYOUT)


def load(policy: PolicyRef = POLICY, fence: Fence = FENCE) -> LoadPolicy:
    return LoadPolicy(fence, policy, Ref("index", "", 0))


class Bench:
    """A service; all that it does is noted. `serving` has it hold POLICY."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now = 0.0
        self.service = Service(name="p0", incarnation="i", limits=limits, now=0.0)
        self.effects: list[Effect] = []
        self._asked = 0

    def post(self, event: Event) -> list[Effect]:
        found = self.service.step(event, self.now)
        self.effects += found
        return found

    def serving(self, policy: PolicyRef = POLICY) -> Bench:
        self.post(Commanded(load(policy)))
        self.post(PolicyLoaded(policy, LAYOUT))
        return self

    def ask(
        self,
        n: int = 0,
        reader: str = "a0",
        *,
        policy: PolicyRef = POLICY,
        fence: Fence = FENCE,
        wanted: KvKey | None = None,
    ) -> int:
        """Ask for prompt `n`; returns the request's number."""
        self._asked += 1
        what = TicketRequest(fence, reader, policy, wanted or key(n, policy), prompt(n), 5.0)
        self.post(Asked(self._asked, what))
        return self._asked

    def compute(self) -> None:
        """Whatever was begun is computed."""
        for effect in self.did(Compute):
            self.post(Computed(effect.key, SIZE))

    def export(self) -> None:
        """Whatever is to be exported is."""
        for effect in self.did(Export):
            ticket = KvTicket(effect.key, "p0", 1, effect.reader, 30.0, b"%d" % effect.number)
            self.post(Exported(effect.number, ticket))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.post(Tick())

    def did(self, kind: type[E]) -> list[E]:
        """Effects of one kind since the last look; they are taken out."""
        found: list[E] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def answer(self, number: int) -> TicketReply:
        """The one answer to request `number`."""
        [found] = [e for e in self.effects if isinstance(e, Answer) and e.number == number]
        return found.reply

    def code(self, number: int) -> str:
        reply = self.answer(number)
        assert isinstance(reply, Refusal), reply
        return reply.code

    def ticket(self, number: int) -> KvTicket:
        reply = self.answer(number)
        assert isinstance(reply, Granted), reply
        return reply.ticket

    def loads(self) -> list[PolicyRef]:
        return [effect.policy for effect in self.did(Load)]

    def reply(self) -> object:
        return self.did(Reply)[-1].reply

    @property
    def beat(self) -> PrefillBeat:
        return self.service.heartbeat(EngineStats())
